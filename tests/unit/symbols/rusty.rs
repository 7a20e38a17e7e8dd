// Rust for test_symbols: site_method is in shop::Basket::add.
#![crate_type = "cdylib"]
#![crate_name = "rusty"]
pub mod shop {
    pub struct Basket(pub i32);
    impl Basket {
        #[inline(never)]
        #[allow(named_asm_labels)]
        pub fn add(&mut self, x: i32) -> i32 {
            unsafe { std::arch::asm!("site_method: nop") };
            self.0 += x;
            self.0
        }
    }
}

#[no_mangle]
pub extern "C" fn fixture_rusty(x: i32) -> i32 {
    shop::Basket(x).add(1)
}
