//! One measurement: prepared, run once to warm what is made once, prepared again, run and counted.

use std::hint::black_box;

/// Runs `work` on what `prepare` makes, once uncounted and once counted, and prints its line. Neither the preparation nor
/// the end of the input and of the result is counted, unless `work` ends its input itself.
pub(crate) fn measure<I, O>(name: &str, says: &str, prepare: impl Fn() -> I, work: impl Fn(I) -> O) {
    drop(black_box(work(prepare())));
    let mut input = Some(black_box(prepare()));
    let mut output = None;
    count_instructions(&mut || output = input.take().map(&work));
    drop(black_box(output));
    println!("{name}\t{says}");
}

/// The tool counts from here to the return, and writes what it has counted. Found by its name.
#[inline(never)]
fn count_instructions(work: &mut dyn FnMut()) {
    work();
    black_box(());
}
