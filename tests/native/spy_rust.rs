// A Rust library for the tests of native stacks, loaded by ctypes.
//
//     spy_rust_run(f)     spy_rust_run > spy_rust::deep::first > <spy_rust::deep::Walker as ...>::visit >
//                         spy_rust::deep::generic > f
use std::hint::black_box;

type Callback = extern "C" fn(i32) -> i32;

pub mod deep {
    use super::{black_box, Callback};

    pub trait Visit {
        fn visit(&self, callback: Callback) -> i32;
    }

    pub struct Walker(pub i32);

    impl Visit for Walker {
        #[inline(never)]
        fn visit(&self, callback: Callback) -> i32 {
            black_box(generic(black_box(self.0), callback)) + 1
        }
    }

    #[inline(never)]
    pub fn generic<T: Into<i32>>(value: T, callback: Callback) -> i32 {
        black_box(callback(black_box(value.into()))) + 1
    }

    #[inline(never)]
    pub fn first(callback: Callback) -> i32 {
        black_box(Walker(black_box(7)).visit(callback)) + 1
    }
}

#[no_mangle]
pub extern "C" fn spy_rust_run(callback: Callback) -> i32 {
    black_box(deep::first(callback)) + 1
}
