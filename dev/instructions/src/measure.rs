//! One measurement. A first run initializes lazy values and is not counted. A second run is
//! counted.

use std::hint::black_box;

/// Runs `work` on the value from `prepare`, once without counting and once with, and prints the
/// measurement's line. Neither the preparation nor dropping the input and the result is counted,
/// unless `work` itself drops its input.
pub(crate) fn measure<I, O>(
    name: &str,
    says: &str,
    prepare: impl Fn() -> I,
    work: impl Fn(I) -> O,
) {
    drop(black_box(work(prepare())));
    let mut input = Some(black_box(prepare()));
    let mut output = None;
    count_instructions(&mut || output = input.take().map(&work));
    drop(black_box(output));
    println!("{name}\t{says}");
}

/// Callgrind finds this function by its name. It counts from here until the function returns, and
/// then writes the count.
#[inline(never)]
fn count_instructions(work: &mut dyn FnMut()) {
    work();
    black_box(());
}
