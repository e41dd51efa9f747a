//! An executor that follows a script instead of running a model: for tests of what stands above
//! this crate. It checks its inputs as a real session does, so that a test cannot pass on inputs
//! that a model would refuse.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::executor::{Executor, RunError, check_inputs};
use crate::tensor::{Tensor, TensorRef, TensorSpec};

type Script =
    Box<dyn FnMut(&[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError> + Send + 'static>;

/// One entry of a list of results for [`Scripted::list`].
pub enum Step {
    /// Answer with these tensors.
    Answer(Vec<Tensor>),
    /// Fail with this error.
    Fail(RunError),
    /// Wait until the gate opens, then go on with the next entry.
    Wait(Gate),
    /// Panic with this message.
    Panic(String),
}

/// What a run waits for; made together with its [`Opener`] by [`gate`].
pub struct Gate(Receiver<()>);

/// Opens its [`Gate`] when dropped or when [`Opener::open`] is called.
pub struct Opener(#[expect(dead_code, reason = "dropping the sender is the signal")] Sender<()>);

impl Opener {
    /// Lets the run that waits at the gate go on.
    pub fn open(self) {
        drop(self);
    }
}

/// A closed gate and the handle that opens it.
pub fn gate() -> (Opener, Gate) {
    let (sender, receiver) = channel();
    (Opener(sender), Gate(receiver))
}

/// An [`Executor`] with fixed specs and scripted results.
pub struct Scripted {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    script: Script,
}

impl Scripted {
    /// Answers every run, after the check of its inputs, with what `script` returns.
    pub fn new(
        inputs: Vec<TensorSpec>,
        outputs: Vec<TensorSpec>,
        script: impl FnMut(&[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError> + Send + 'static,
    ) -> Self {
        Self { inputs, outputs, script: Box::new(script) }
    }

    /// Answers runs from a list, one result each; a run past the end of the list is an error.
    pub fn list(
        inputs: Vec<TensorSpec>,
        outputs: Vec<TensorSpec>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let mut steps: VecDeque<Step> = steps.into_iter().collect();
        Self::new(inputs, outputs, move |_| {
            loop {
                match steps.pop_front() {
                    Some(Step::Answer(tensors)) => return Ok(tensors),
                    Some(Step::Fail(error)) => return Err(error),
                    // The channel carries nothing: its end is the signal.
                    Some(Step::Wait(gate)) => drop(gate.0.recv()),
                    Some(Step::Panic(message)) => std::panic::panic_any(message),
                    None => return Err(RunError::Execution("the script has ended".into())),
                }
            }
        })
    }
}

impl Executor for Scripted {
    fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    fn run(&mut self, inputs: &[(&str, TensorRef<'_>)]) -> Result<Vec<Tensor>, RunError> {
        check_inputs(&self.inputs, inputs)?;
        (self.script)(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dim, ElementType};

    fn spec() -> TensorSpec {
        let dims = vec![Dim::Symbolic("N".into()), Dim::Fixed(2)];
        TensorSpec { name: "x".into(), element: ElementType::F32, dims }
    }

    #[test]
    fn inputs_are_checked_before_the_script_runs() {
        let mut fake = Scripted::new(vec![spec()], vec![], |_| panic!("must not run"));
        let good = Tensor::from_f32s(vec![1, 2], &[1.0, 2.0]).unwrap();
        let bad = Tensor::from_f32s(vec![2], &[1.0, 2.0]).unwrap();
        let text = |inputs: &[(&str, TensorRef<'_>)], fake: &mut Scripted| {
            let error = fake.run(inputs).unwrap_err();
            assert!(error.is_caller());
            error.to_string()
        };
        assert_eq!(text(&[], &mut fake), "input \"x\" is missing");
        assert_eq!(
            text(&[("y", good.view())], &mut fake),
            "the model has no input \"y\"; its inputs are [\"x\"]"
        );
        assert_eq!(
            text(&[("x", bad.view())], &mut fake),
            "input \"x\" must have shape [N,2], got [2]"
        );
        assert_eq!(
            text(&[("x", good.view()), ("x", good.view())], &mut fake),
            "input \"x\" is given more than once"
        );
    }

    #[test]
    fn a_gate_holds_the_run_until_it_is_opened() {
        let (opener, gate) = gate();
        let steps =
            [Step::Wait(gate), Step::Answer(vec![]), Step::Fail(RunError::Execution("x".into()))];
        let mut fake = Scripted::list(vec![], vec![], steps);
        let (tell, told) = channel();
        let worker = std::thread::spawn(move || {
            tell.send("started").unwrap();
            let first = fake.run(&[]);
            tell.send("answered").unwrap();
            (first, fake.run(&[]), fake.run(&[]))
        });
        assert_eq!(told.recv().unwrap(), "started");
        assert!(told.try_recv().is_err());
        opener.open();
        let (first, second, third) = worker.join().unwrap();
        assert_eq!(first, Ok(vec![]));
        assert_eq!(second, Err(RunError::Execution("x".into())));
        assert_eq!(third, Err(RunError::Execution("the script has ended".into())));
    }
}
