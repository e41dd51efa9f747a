//! A process of its own: what a run leaves behind. Memory is read from the kernel, so nothing else
//! may run beside it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is the test's report")]

use midspan_runtime::{Executor, Session, SessionOptions, Tensor, test_support};
use midspan_split::Bundle;

/// Anonymous resident memory, KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_run_leaves_nothing_behind() {
    test_support::library();
    assert_eq!(std::env::var("ORT_DISABLE_TELEMETRY").as_deref(), Ok("1"));
    let front = Bundle::embedded().unwrap().stage_model(0).unwrap();
    let mut session = Session::load(&front, &SessionOptions::default(), None).unwrap();
    assert_eq!(session.outputs().len(), 2);
    let input = Tensor::from_f32s(vec![1, 1, 28, 28], &[0.5; 784]).unwrap();
    let mut run = |times: usize| {
        for _ in 0..times {
            session.run(&[("image", input.view())]).unwrap();
        }
        resident()
    };
    // The first runs fill what loading the model has freed.
    let before = run(10_000);
    let after = run(30_000);
    // A type info that is not released costs about 320 bytes per output: 19 MiB here.
    assert!(after < before + 4_096, "{before} KiB grew to {after} KiB in 30,000 runs");
}
