//! Hands what the fuzzer makes to the target `grpc_peek`, which asserts.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _outcome = system_tests::fuzz::run("grpc_peek", data);
});
