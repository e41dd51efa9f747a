//! A plan as one HTML file that needs nothing else: verdicts per link, the two pictures, and a
//! table of candidates with the reason of each. Pure: text out.

use std::fmt::Write as _;

use super::chart::{self, ChartError, size};
use super::choose::{Fate, Plan, Planned};
use super::{Agreement, Costs, Inputs};
use crate::profile::Profile;

/// Candidates of a link's table, beside those of the Pareto set.
const MOST_ROWS: usize = 40;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#1f2937;max-width:1000px;margin:2em auto;padding:0 1em}\
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;width:100%;font-size:13px}\
th,td{text-align:left;padding:4px 8px;border-bottom:1px solid #e5e7eb;vertical-align:top}\
th{color:#6b7280;font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
tr.best{background:#ecfdf5;font-weight:600}tr.off{color:#6b7280}.verdict{border-left:4px solid #0072b2;\
padding:.4em 1em;background:#f3f4f6;margin:.6em 0}svg{max-width:100%;height:auto}p.note{color:#6b7280;font-size:13px}";

/// The report of plans that were made of one set of costs.
///
/// # Errors
/// When a picture cannot be drawn.
pub fn html(inputs: &Inputs<'_>, costs: &Costs, plans: &[Plan]) -> Result<String, ChartError> {
    let mut page = String::new();
    let model = inputs.edge.model.sha256;
    push(
        &mut page,
        format_args!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Midspan: plan of a split</title><style>{STYLE}</style>\
         <h1>Where to divide model {}</h1>",
            &model.to_string()[..12]
        ),
    );
    push(
        &mut page,
        format_args!(
            "<p>Edge: {}<br>Cloud: {}</p>",
            side(inputs.edge, inputs.edge_slowdown),
            side(inputs.cloud, 1.0)
        ),
    );
    for plan in plans {
        push(
            &mut page,
            format_args!(
                "<div class=\"verdict\"><b>{}</b><br>{}</div>",
                escape(&plan.link.to_string()),
                escape(&summary(plan))
            ),
        );
    }
    if let Some(plan) = plans.first() {
        push(
            &mut page,
            format_args!(
                "<h2>Bytes and agreement</h2>{}<p class=\"note\">Dots are what was measured, whiskers \
             reach down to its lower bound at 95 % confidence; the broken line is the agreement \
             asked for. Candidates that are the whole model by construction stand at 100 %.</p>",
                chart::rate_fidelity(plan)?
            ),
        );
    }
    for plan in plans {
        let name = escape(&plan.link.name);
        push(
            &mut page,
            format_args!(
                "<h2>{name}</h2>{}<p class=\"note\">The broken line is this link.</p>",
                chart::latency_over_bandwidth(costs, &plan.link, &plan.bounds)?
            ),
        );
        table(&mut page, plan);
    }
    page.push_str("</html>\n");
    Ok(page)
}

/// What to do on a link and what the other way would cost, in one sentence.
pub fn summary(plan: &Plan) -> String {
    let ms = |planned: &Planned| format!("{:.1} ms", planned.latency_us / 1e3);
    let Some(best) = plan.recommended() else {
        return format!("{}; the closest is above or below what was asked for", plan.verdict);
    };
    let other = plan.best(!plan.verdict.splits());
    let other = match other {
        Some(other) if plan.verdict.splits() => {
            format!("; without a split the best is {} ({})", other.candidate, ms(other))
        }
        Some(other) => format!("; the best split is {} ({})", other.candidate, ms(other)),
        None if plan.verdict.splits() => "; nothing without a split keeps the bounds".into(),
        None => "; no split keeps the bounds".into(),
    };
    format!("{} ({}){other}", plan.verdict, ms(best))
}

fn side(profile: &Profile, slowdown: f64) -> String {
    let slow = profile.slowdown * slowdown;
    let slower = if slow == 1.0 { String::new() } else { format!(", made {slow} times slower") };
    let text = format!(
        "{}, {} cores, {}, ONNX Runtime {}, {}{slower}",
        profile.device.cpu,
        profile.device.cores,
        profile.device.arch,
        profile.device.onnx_runtime,
        profile.date
    );
    escape(&text)
}

fn table(page: &mut String, plan: &Plan) {
    page.push_str(
        "<table><tr><th>candidate<th class=\"n\">latency, ms<th class=\"n\">bytes up<th class=\"n\">edge, ms\
         <th class=\"n\">cloud, ms<th class=\"n\">agreement<th>",
    );
    let shown = |(index, planned): &(usize, &Planned)| *index < MOST_ROWS || planned.pareto;
    for (_, planned) in plan.candidates.iter().enumerate().filter(shown) {
        let class = match planned.fate {
            Fate::Recommended => "best",
            Fate::Slower { .. } => "",
            _ => "off",
        };
        let mark = if planned.timed { "" } else { " ~" };
        push(
            page,
            format_args!(
                "<tr class=\"{class}\"><td>{}<td class=\"n\">{:.2}{mark}<td class=\"n\">{}<td class=\"n\">{:.2}\
             <td class=\"n\">{:.2}<td class=\"n\">{}<td>{}",
                escape(&planned.candidate.to_string()),
                planned.latency_us / 1e3,
                size(planned.uplink_bytes),
                planned.edge_us / 1e3,
                planned.cloud_us / 1e3,
                agreement(&planned.agreement),
                escape(&planned.fate.to_string()),
            ),
        );
    }
    let hidden = plan.candidates.iter().enumerate().filter(|entry| !shown(entry)).count();
    push(
        page,
        format_args!(
            "</table><p class=\"note\">~ marks halves that were not measured but lie between measured ones. {hidden} more candidates are not shown.</p>"
        ),
    );
}

/// Agreement for people: its lower bound where it was measured.
pub fn agreement(agreement: &Agreement) -> String {
    match agreement {
        Agreement::Exact => "exact".into(),
        Agreement::Assumed => "assumed".into(),
        Agreement::Measured { lower, .. } => format!("\u{2265} {:.2} %", lower * 100.0),
        Agreement::Unknown => "unknown".into(),
    }
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _always = page.write_fmt(text);
}

/// Names come from models and files: none of them may become markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
