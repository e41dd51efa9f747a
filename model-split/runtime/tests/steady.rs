//! A process of its own: what a run over strings leaves behind. Memory is read from the kernel, so
//! nothing else may run beside it.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is the test's report")]

use midspan_runtime::{ElementType, Executor, Session, SessionOptions, Tensor, test_support};

/// Anonymous resident memory, KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_run_over_strings_leaves_nothing_behind() {
    test_support::library();
    let any = (ElementType::String, &[][..]);
    let model = test_support::model("Identity", &[], any, any);
    let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
    let input = Tensor::from_strings(vec![3], &[&[0xff; 2048][..], b"", b"\0"]).unwrap();
    let mut run = |times: usize| {
        for _ in 0..times {
            assert_eq!(session.run(&[("x", input.view())]).unwrap().len(), 1);
        }
        resident()
    };
    // The first runs fill what loading the model has freed.
    let before = run(2_000);
    let after = run(20_000);
    // A tensor that is not released costs 2 KiB for its strings alone: 40 MiB here.
    assert!(after < before + 4_096, "{before} KiB grew to {after} KiB in 20,000 runs");
}
