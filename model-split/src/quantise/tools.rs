//! Having Python quantise one model, and judging what came back: it must load, and read and answer
//! what the model did. Files that go between the two live in a folder that is gone afterwards.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use midspan_runtime::{Dim, Executor as _, Session, SessionOptions, TensorSpec};
use serde::Deserialize;
use serde_json::json;

use super::{Environment, Options, QuantiseError, Row, environment, failed, npz};
use crate::onnx::{self, ModelProto, pb};

const SCRIPT: &str = include_str!("quantise.py");
const LARGEST_MODEL: u64 = 2 << 30;

/// One model quantised.
pub(super) struct Part {
    pub(super) model: ModelProto,
    /// Tensors that are quantised in it.
    pub(super) tensors: usize,
    /// Whether weights have a scale per channel.
    pub(super) per_channel: bool,
}

/// What the script says of its work.
#[derive(Deserialize)]
struct Wrote {
    per_channel: bool,
    quantised: usize,
}

/// Has the tools quantise one model. `keep` are inner tensors that must keep their names; `progress`
/// is called with the number of rows run.
///
/// # Errors
/// What the tools said, or in what their model differs.
pub(super) fn quantise(
    plain: &ModelProto,
    keep: &[String],
    rows: &[Row],
    stage: usize,
    options: &Options,
    environment: &Environment,
    progress: &mut dyn FnMut(usize),
) -> Result<Part, QuantiseError> {
    let scratch = tempfile::tempdir().map_err(failed("create", &std::env::temp_dir()))?;
    let folder = scratch.path();
    let specs = session(plain, stage)?;
    let names: Vec<&str> = specs.inputs().iter().map(|input| input.name.as_str()).collect();
    let request = json!({
        "inputs": names,
        "samples": rows.len(),
        "method": options.calibration.name(),
        "reduce_range": options.reduce_range,
    });
    let model = onnx::encode(&exposed(plain, keep));
    for (name, bytes) in [
        ("model.onnx", model.as_slice()),
        ("quantise.py", SCRIPT.as_bytes()),
        ("request.json", request.to_string().as_bytes()),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(failed("write", &path))?;
    }
    npz::write(&folder.join("samples.npz"), &names, rows).map_err(QuantiseError::Samples)?;
    run(folder, stage, environment, progress)?;
    let tools = |detail| QuantiseError::Tools { stage, detail };
    let read = |name: &str| {
        crate::bundle::read_bounded(&folder.join(name), LARGEST_MODEL)
            .map_err(|error| tools(format!("{name}: {error}")))
    };
    let wrote: Wrote = serde_json::from_slice(&read("result.json")?)
        .map_err(|error| tools(format!("result.json: {error}")))?;
    let mut model = onnx::decode(read("quantised.onnx")?.into())
        .map_err(|source| QuantiseError::Onnx { stage, source })?;
    if wrote.quantised == 0 {
        return Err(tools("they found nothing to quantise in it".into()));
    }
    conceal(&mut model, plain, keep, stage)?;
    check(&specs, &session(&model, stage)?, stage)?;
    Ok(Part { model, tensors: wrote.quantised, per_channel: wrote.per_channel })
}

/// Runs the script in its folder to its end.
fn run(
    folder: &Path,
    stage: usize,
    environment: &Environment,
    progress: &mut dyn FnMut(usize),
) -> Result<(), QuantiseError> {
    let (script, log) = (folder.join("quantise.py"), folder.join("said.log"));
    let said = File::create(&log).map_err(failed("create", &log))?;
    let mut child = environment
        .command()
        .arg(&script)
        .arg(folder)
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(said)
        .spawn()
        .map_err(failed("run", &script))?;
    let out = child.stdout.take().map(BufReader::new).into_iter();
    for line in out.flat_map(|out| out.split(b'\n')).map_while(Result::ok) {
        // Lines of another form are of no interest: warnings of the tools.
        let line = String::from_utf8_lossy(&line);
        let number = line.strip_prefix("sample ").and_then(|number| number.trim().parse().ok());
        number.into_iter().for_each(&mut *progress);
    }
    let status = child.wait().map_err(failed("wait for", &script))?;
    if status.success() {
        return Ok(());
    }
    Err(QuantiseError::Tools { stage, detail: environment::last_lines(&log) })
}

/// A model, loaded.
pub(super) fn session(model: &ModelProto, stage: usize) -> Result<Session, QuantiseError> {
    Session::load(&onnx::encode(model), &SessionOptions::default(), None)
        .map_err(|source| QuantiseError::Load { stage, source })
}

fn outputs(model: &ModelProto) -> impl Iterator<Item = &str> {
    model.graph.iter().flat_map(|graph| graph.output.iter().map(|output| output.name()))
}

/// The model with these inner tensors as outputs too: what is an output keeps its name.
fn exposed(plain: &ModelProto, keep: &[String]) -> ModelProto {
    let mut model = plain.clone();
    let Some(graph) = &mut model.graph else { return model };
    for name in keep {
        let known = graph.output.iter().chain(&graph.input).any(|known| known.name() == name);
        if !known {
            let output = pb::ValueInfoProto { name: Some(name.clone()), ..Default::default() };
            graph.output.push(output);
        }
    }
    model
}

/// Takes back what [`exposed`] added, and what the tools noted of inner shapes.
fn conceal(
    model: &mut ModelProto,
    plain: &ModelProto,
    keep: &[String],
    stage: usize,
) -> Result<(), QuantiseError> {
    let Some(graph) = &mut model.graph else { return Ok(()) };
    let made = |name: &String| {
        let mut inputs = graph.input.iter().map(|input| input.name());
        graph.node.iter().any(|node| node.output.contains(name)) || inputs.any(|x| x == name)
    };
    if let Some(lost) = keep.iter().find(|name| !made(name)) {
        let reason = format!("it has no tensor \"{lost}\", which the head of its exit reads");
        return Err(QuantiseError::Differs { stage, reason });
    }
    graph.output.retain(|output| outputs(plain).any(|name| name == output.name()));
    graph.value_info.clear();
    Ok(())
}

/// Whether the two read and answer the same.
fn check(plain: &Session, quantised: &Session, stage: usize) -> Result<(), QuantiseError> {
    let sides = [
        ("input", plain.inputs(), quantised.inputs()),
        ("output", plain.outputs(), quantised.outputs()),
    ];
    for (what, cut, made) in sides {
        let text = |spec: &TensorSpec| format!("{} {}", spec.element, spec.dims_text());
        for spec in cut {
            let found = made.iter().find(|found| found.name == spec.name);
            let now = found.map_or("missing".into(), text);
            if found
                .is_none_or(|found| found.element != spec.element || sizes(found) != sizes(spec))
            {
                let reason = format!("{what} \"{}\" is {now}, it was {}", spec.name, text(spec));
                return Err(QuantiseError::Differs { stage, reason });
            }
        }
        if made.len() != cut.len() {
            let reason = format!("it has {} {what}s, it had {}", made.len(), cut.len());
            return Err(QuantiseError::Differs { stage, reason });
        }
    }
    Ok(())
}

/// The dimensions, whatever open ones are called.
fn sizes(spec: &TensorSpec) -> Vec<i64> {
    spec.dims.iter().map(Dim::as_oip).collect()
}
