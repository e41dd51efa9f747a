//! `midspan split inspect`: what is in a model, and where can it be cut?

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args as ClapArgs;
use midspan_runtime::TensorSpec;
use midspan_split::cut::{MOST_TENSORS, Options};
use midspan_split::inspect::{Costed, Inspection, inspect};
use midspan_split::onnx;
use serde_json::{Value, json};

use crate::table;

/// Show a model's operators, parameters and multiply-accumulates, every cut with what crosses it
/// and how much lies in front of it, and where the model cannot be cut and why. A row is what has
/// 1 in place of the inputs' first dimension; give other sizes that vary with --dim.
///
/// Example:  midspan split inspect models/fashion.onnx
///           midspan split inspect detector.onnx --tensors 2 --dim height=640 --dim width=640
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The model; weights that it keeps in other files are looked for beside it.
    model: PathBuf,
    /// Show cuts of up to this many tensors: all of one, and of more those between two nodes when
    /// the nodes run as listed, as early or as late as they can, or branch by branch.
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=MOST_TENSORS as i64))]
    tensors: u8,
    /// Size of a symbolic dimension of the inputs.
    #[arg(long, value_name = "NAME=SIZE", value_parser = dimension)]
    dim: Vec<(String, i64)>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn dimension(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.rsplit_once('=').ok_or("expected NAME=SIZE")?;
    let size: i64 = size.parse().map_err(|_| format!("\"{size}\" is no size"))?;
    if size < 1 {
        return Err(format!("size {size} of \"{name}\" is less than 1"));
    }
    Ok((name.to_owned(), size))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let opened = onnx::open(&args.model)?;
    let options = Options { tensors: args.tensors.into() };
    let inspection = inspect(&opened.model, &opened.folder, &args.dim, &options)
        .with_context(|| args.model.display().to_string())?;
    for (name, _) in &args.dim {
        let mut dims = inspection.inputs.iter().flat_map(|input| &input.dims);
        ensure!(
            dims.any(|dim| dim.to_string() == *name),
            "--dim {name}: no input has a dimension of this name"
        );
    }
    if args.json {
        out!("{}", as_json(&inspection));
    } else {
        print(&inspection);
    }
    Ok(())
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.1} %", share * 100.0))
}

fn spec_text(spec: &TensorSpec) -> String {
    format!("{} {}{}", spec.name, spec.element, spec.dims_text())
}

fn print(inspection: &Inspection) {
    let opsets = inspection.opsets.iter().map(|(domain, version)| match domain.as_str() {
        "" => version.to_string(),
        domain => format!("{domain} {version}"),
    });
    out!("opset       {} (IR {})", opsets.collect::<Vec<_>>().join(", "), inspection.ir_version);
    for input in &inspection.inputs {
        out!("input       {}", spec_text(input));
    }
    for output in &inspection.outputs {
        out!("output      {}", spec_text(output));
    }
    out!("parameters  {} ({} bytes)", inspection.parameters, inspection.weight_bytes);
    out!("MACs a row  {}", inspection.work.macs);
    for (operator, nodes) in &inspection.work.uncounted {
        out!("            not counted: {nodes} of {operator}");
    }
    let operators = inspection.operators.iter().map(|((domain, operator), count)| {
        let separator = if domain.is_empty() { "" } else { "." };
        vec![format!("{domain}{separator}{operator}"), count.to_string()]
    });
    out!("\n{}", table::render(&["OPERATOR", "NODES"], &operators.collect::<Vec<_>>()));
    let cuts: Vec<Vec<String>> =
        inspection.cuts.iter().map(|cut| cut_row(cut, inspection)).collect();
    let head = ["CUT", "TENSORS", "BYTES A ROW", "MACS", "PARAMETERS", "NOTE"];
    if cuts.is_empty() {
        out!("\nno cuts");
    } else {
        out!("\n{}", table::render(&head, &cuts));
    }
    let regions = inspection.regions.iter().map(|region| {
        let span = if region.tensors == 1 {
            region.first.clone()
        } else {
            format!("{} .. {} ({})", region.first, region.last, region.tensors)
        };
        vec![span, region.why.reason().to_owned(), region.why.to_string()]
    });
    let regions: Vec<Vec<String>> = regions.collect();
    if !regions.is_empty() {
        out!("\n{}", table::render(&["NO CUT AT", "REASON", "BECAUSE"], &regions));
    }
}

fn cut_row(cut: &Costed, inspection: &Inspection) -> Vec<String> {
    let tensors = cut.tensors.iter().map(|spec| format!("{}{}", spec.element, spec.dims_text()));
    let mut notes: Vec<String> = Vec::new();
    if let Some(quantised) = &cut.found.instead {
        notes.push(format!("prefer {quantised}"));
    }
    if !cut.found.answers.is_empty() {
        notes.push(format!("front answers {}", cut.found.answers.join(", ")));
    }
    vec![
        cut.found.cut.tensors.join(","),
        tensors.collect::<Vec<_>>().join(" "),
        cut.row_bytes.map_or("-".into(), |bytes| bytes.to_string()),
        percent(share(cut.front_macs, inspection.work.macs)),
        percent(share(cut.front_parameters, inspection.parameters)),
        notes.join("; "),
    ]
}

fn as_json(inspection: &Inspection) -> Value {
    let tensor = |spec: &TensorSpec| {
        let shape: Vec<String> = spec.dims.iter().map(ToString::to_string).collect();
        json!({ "name": spec.name, "datatype": spec.element.oip_name(), "shape": shape })
    };
    let operators = inspection.operators.iter().map(|((domain, operator), nodes)| {
        json!({ "domain": domain, "operator": operator, "nodes": nodes })
    });
    let opsets = inspection.opsets.iter();
    let opsets = opsets.map(|(domain, version)| json!({ "domain": domain, "version": version }));
    let cuts = inspection.cuts.iter().map(|cut| {
        json!({
            "tensors": cut.tensors.iter().map(tensor).collect::<Vec<_>>(),
            "row_bytes": cut.row_bytes,
            "front_macs": cut.front_macs,
            "front_macs_share": share(cut.front_macs, inspection.work.macs),
            "front_parameters": cut.front_parameters,
            "front_parameters_share": share(cut.front_parameters, inspection.parameters),
            "front_answers": cut.found.answers,
            "instead": cut.found.instead,
        })
    });
    let regions = inspection.regions.iter().map(|region| {
        json!({
            "first": region.first,
            "last": region.last,
            "tensors": region.tensors,
            "reason": region.why.reason(),
            "because": region.why.to_string(),
        })
    });
    json!({
        "ir_version": inspection.ir_version,
        "opsets": opsets.collect::<Vec<_>>(),
        "inputs": inspection.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "outputs": inspection.outputs.iter().map(tensor).collect::<Vec<_>>(),
        "operators": operators.collect::<Vec<_>>(),
        "parameters": inspection.parameters,
        "weight_bytes": inspection.weight_bytes,
        "macs": inspection.work.macs,
        "macs_uncounted": inspection.work.uncounted,
        "cuts": cuts.collect::<Vec<_>>(),
        "uncuttable": regions.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_has_a_name_and_a_size() {
        assert_eq!(dimension("a=b=3"), Ok(("a=b".to_owned(), 3)));
        assert_eq!(dimension("a").unwrap_err(), "expected NAME=SIZE");
        assert_eq!(dimension("a=x").unwrap_err(), "\"x\" is no size");
        assert_eq!(dimension("a=0").unwrap_err(), "size 0 of \"a\" is less than 1");
    }
}
