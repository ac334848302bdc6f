//! The sizes that the book states ("A kernel in Rust").

use crate::flush::token::Token;
use crate::testing::mock_kernel::World;
use crate::transport::room::{ROOM, Room};

#[test]
fn token_has_the_size_that_the_book_states() {
    // The words of this kernel are larger than a processor's, and only the room holds any.
    let others = size_of::<Token<'_, '_, World, 1>>() - size_of::<Room<World>>();
    assert_eq!(others + ROOM, 216);
}
