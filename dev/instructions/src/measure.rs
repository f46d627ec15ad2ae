//! One measurement. The first run initializes lazy values and is not counted. The second run is
//! counted.

use std::hint::black_box;

/// Runs `work` twice, each time on a new value from `prepare`, and prints the measurement's line.
/// Only the second run is counted. Neither the preparation nor dropping the input and the result is
/// counted, unless `work` itself drops its input.
pub(crate) fn measure<I, O>(
    name: &str,
    description: &str,
    prepare: impl Fn() -> I,
    work: impl Fn(I) -> O,
) {
    drop(black_box(work(prepare())));
    let mut input = Some(black_box(prepare()));
    let mut output = None;
    count_instructions(&mut || output = input.take().map(&work));
    drop(black_box(output));
    println!("{name}\t{description}");
}

/// Callgrind finds this function by its name. It counts from here until the function returns, and
/// then writes the count.
#[inline(never)]
fn count_instructions(work: &mut dyn FnMut()) {
    work();
    black_box(());
}
