# The library for a kernel in C, as a CMake target. It is built by shootdown.mk, whose settings apply.
#
#     set(SHOOTDOWN_ARCH aarch64)      # by default the processor that is built for
#     include(.../shootdown-c/link/shootdown.cmake)
#     target_link_libraries(kernel PRIVATE shootdown::shootdown)

if(NOT SHOOTDOWN_ARCH)
    set(SHOOTDOWN_ARCH ${CMAKE_SYSTEM_PROCESSOR})
endif()
if(NOT SHOOTDOWN_CPU_WORDS)
    set(SHOOTDOWN_CPU_WORDS 1)
endif()
find_program(SHOOTDOWN_MAKE NAMES gmake make REQUIRED)
set(SHOOTDOWN_OUT ${CMAKE_CURRENT_BINARY_DIR}/shootdown-${SHOOTDOWN_ARCH})
set(SHOOTDOWN_OBJECT ${SHOOTDOWN_OUT}/shootdown.o)
foreach(setting ARCH OUT CPU_WORDS DESIGN HOOKS CPU_INSTRUCTION OPT FEATURES TARGET RUSTFLAGS DEBUG NO_GOT)
    if(DEFINED SHOOTDOWN_${setting})
        list(APPEND shootdown_settings "SHOOTDOWN_${setting}=${SHOOTDOWN_${setting}}")
    endif()
endforeach()

# Cargo knows what has changed.
add_custom_target(shootdown-object
    COMMAND ${SHOOTDOWN_MAKE} --no-print-directory -f ${CMAKE_CURRENT_LIST_DIR}/shootdown.mk ${shootdown_settings}
            SHOOTDOWN_LD=${CMAKE_LINKER} SHOOTDOWN_OBJCOPY=${CMAKE_OBJCOPY} ${SHOOTDOWN_OBJECT}
    BYPRODUCTS ${SHOOTDOWN_OBJECT}
    VERBATIM)

add_library(shootdown INTERFACE)
add_library(shootdown::shootdown ALIAS shootdown)
add_dependencies(shootdown shootdown-object)
target_include_directories(shootdown INTERFACE ${CMAKE_CURRENT_LIST_DIR}/../include)
target_compile_definitions(shootdown INTERFACE SHOOTDOWN_CPU_WORDS=${SHOOTDOWN_CPU_WORDS})
target_link_libraries(shootdown INTERFACE ${SHOOTDOWN_OBJECT})
set_target_properties(shootdown PROPERTIES INTERFACE_LINK_DEPENDS ${SHOOTDOWN_OBJECT})
