//! Compiles `src/allocator.c`, which sets an option of the allocator.

fn main() {
    println!("cargo::rerun-if-changed=src/allocator.c");
    let headers = std::env::var("DEP_MIMALLOC_INCLUDE_DIR")
        .expect("the build of libmimalloc-sys says where the allocator's headers are");
    cc::Build::new()
        .file("src/allocator.c")
        .include(headers)
        // Nothing calls the function in it, so the linker would leave it out.
        .link_lib_modifier("+whole-archive")
        .compile("anneal_allocator");
}
