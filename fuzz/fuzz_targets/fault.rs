//! An error's details, as a Space sends them: any bytes give a fault, and a fault that goes out
//! comes back the same.
#![no_main]

use airlock_wire::Fault;
use libfuzzer_sys::fuzz_target;
use tonic::{Code, Status};

fuzz_target!(|input: (i32, &str, &[u8])| {
    let (code, message, details) = input;
    let details = details.to_vec().into();
    let status = Status::with_details(Code::from(code), message, details);
    let fault = Fault::from_status(&status);
    if fault.kind.reason().is_some() {
        assert_eq!(Fault::from_status(&Status::from(fault.clone())).kind, fault.kind);
    }
});
