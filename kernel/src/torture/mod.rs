//! placeholder
use crate::options::Options;
/// t
pub fn tightened(d: shootdown::Design, _c: usize) -> shootdown::Design {
    d
}
/// r
pub fn run(_o: &Options) -> ! {
    loop {}
}
