# SPDX-License-Identifier: GPL-2.0-only OR MIT
# stress.sh SECONDS STRESSOR OPTIONS...: a stressor of stress-ng, while CPUs go offline and come back one after the other.
# Status: that of stress-ng.
seconds=$1
stressor=$2
shift 2
/usr/bin/stress-ng "--$stressor" 4 --timeout "${seconds}s" --verify --metrics-brief --temp-path /tmp --seed 1 "$@" &
stress=$!
cycles=0
while kill -0 $stress 2>/dev/null; do
    for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
        # A CPU to which the last task of a stressor is bound may refuse.
        { echo 0 >"$cpu" && sleep 0.1 && echo 1 >"$cpu" && cycles=$((cycles + 1)); } 2>/dev/null
        sleep 0.1
    done
done
wait $stress
status=$?
for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
    echo 1 >"$cpu"
done 2>/dev/null
echo "CPUs went and came back $cycles times"
exit $status
