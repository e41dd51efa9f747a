//! The path, the test and the certificates, on rows whose outcome is known; and the promise itself
//! on populations of known risk, where the plain empirical threshold breaks it.

use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::answers::{Answers, ExitLogits, Logits};
use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::manifest::{Manifest, PLAIN};

fn word(class: usize, until: impl Into<Option<u32>>) -> Word {
    Word { class, until: until.into() }
}

/// A row of one exit, of a whole model that answers class 0.
fn row(class: usize, until: impl Into<Option<u32>>) -> Row {
    Row { exits: vec![word(class, until)], whole: Some(0), label: None }
}

fn budget(share: f64, confidence: f64) -> Budget {
    Budget::new(share, confidence).unwrap()
}

#[test]
fn the_first_sure_exit_answers_at_each_step() {
    let rows = [
        Row { exits: vec![word(1, 500), word(0, 900)], whole: Some(0), label: Some(0) },
        Row { exits: vec![word(0, 800), word(1, 700)], whole: Some(0), label: Some(1) },
        Row { exits: vec![word(2, None), word(1, 1000)], whole: Some(0), label: Some(3) },
        Row { exits: vec![word(0, None), word(0, None)], whole: Some(0), label: Some(0) },
        Row { exits: vec![word(4, 0), word(4, None)], whole: None, label: Some(4) },
    ];
    let path = Path::of(&rows);
    let at = |threshold| {
        let step = path.at(threshold);
        (step.answered, step.disagreements, step.label_losses)
    };
    assert_eq!(path.samples, 5);
    assert_eq!((at(1000), at(901)), ((1, 1, 0), (1, 1, 0)));
    assert_eq!((at(900), at(800), at(501)), ((2, 1, 0), (3, 1, 0), (3, 1, 0)));
    // The first exit takes the first row from the second, and is wrong where that was right.
    assert_eq!((at(500), at(1)), ((3, 2, 1), (3, 2, 1)));
    // A whole model that gives no number agrees with nobody and is right for nobody.
    assert_eq!(at(0), (4, 3, 1));
    let steps: Vec<u32> = path.steps().map(|(threshold, _)| threshold).collect();
    assert_eq!((steps[0], steps[1000], steps.len()), (1000, 0, 1001));
    for (threshold, step) in path.steps() {
        let answer = |row: &Row| {
            let sure = row.exits.iter().find(|word| word.until >= Some(threshold));
            sure.map(|word| Some(word.class) != row.whole)
        };
        let answers: Vec<bool> = rows.iter().filter_map(answer).collect();
        assert_eq!(step.answered as usize, answers.len());
        assert_eq!(step.disagreements as usize, answers.iter().filter(|lost| **lost).count());
    }
}

#[test]
fn rows_are_what_the_rules_of_a_node_decide() {
    let manifest = Bundle::embedded().unwrap().manifest().clone();
    let sure_at = |confidence: f64| (((1.0 / confidence - 1.0) / 9.0).ln() * -1.07) as f32;
    let logits = |first: f32| [&[first][..], &[0.0; 9]].concat();
    let exit = [
        logits(sure_at(0.7855)),
        logits(0.0),
        logits(f32::NAN),
        logits(f32::INFINITY),
        logits(1e9),
        [&[0.0; 9][..], &[sure_at(0.92)]].concat(),
    ];
    let whole = [0, 0, 0, 0, 0, 5].map(|class| {
        let mut logits = vec![0.0; 10];
        logits[class] = 3.0;
        logits
    });
    let mut whole = whole.concat();
    whole[49] = f32::NAN;
    let answers = Answers {
        exits: vec![ExitLogits { stage: 0, logits: Logits::new(10, exit.concat()) }],
        whole: Logits::new(10, whole),
        labels: vec![None; 6],
    };
    let rows = rows(&manifest, &answers);
    let words: Vec<_> = rows.iter().map(|row| (row.exits[0].until, row.whole)).collect();
    // Equal logits are a tenth sure each; what is no number is never sure.
    let expected = [(Some(785), Some(0)), (Some(100), Some(0)), (None, Some(0))];
    assert_eq!(words[..3], expected);
    assert_eq!(
        words[3..],
        [(None, Some(0)), (Some(1000), None), (Some(919), Some(5))]
            .map(|(until, whole)| (until, whole))
    );
    let rule = manifest.stages[0].exit.clone().unwrap();
    for (row, logits) in rows.iter().zip(&exit) {
        for milli in 0..=STRICTEST {
            let rule = crate::manifest::Exit { threshold_milli: Some(milli), ..rule.clone() };
            let decision = rule.rule().unwrap().decide(logits);
            assert_eq!(decision.sure, row.exits[0].until >= Some(milli), "{milli} {logits:?}");
            assert!(!decision.sure || decision.class == row.exits[0].class);
        }
    }
}

#[test]
fn the_tail_of_the_binomial_decides() {
    let one_point = budget(0.01, 0.95);
    // 0.99^298 is 0.05003, 0.99^299 is 0.04953.
    assert_eq!(one_point.least_samples(), 299);
    assert_eq!((one_point.most_losses(298), one_point.most_losses(299)), (None, Some(0)));
    assert_eq!((one_point.most_losses(0), one_point.most_losses(5000)), (None, Some(38)));
    assert_eq!((budget(0.5, 0.8).least_samples(), budget(0.5, 0.5).least_samples()), (3, 1));
    assert!(budget(1e-300, 0.95).least_samples() > 1 << 60);
    for (share, confidence, text) in [
        (0.0, 0.95, "budget = 0: must be above 0 and below 1"),
        (1.0, 0.95, "budget = 1: must be above 0 and below 1"),
        (f64::NAN, 0.95, "budget = NaN: must be above 0 and below 1"),
        (0.01, 0.1, "confidence = 0.1: must be 0.5 to 0.999999999"),
        (0.01, 95.0, "confidence = 95: must be 0.5 to 0.999999999"),
    ] {
        assert_eq!(Budget::new(share, confidence).unwrap_err().to_string(), text);
    }
}

#[test]
fn the_walk_ends_at_the_first_step_that_is_not_certified() {
    let budget = budget(0.01, 0.95);
    // Of 1,000 samples 4 may be lost. The fifth comes at 0.400, and goes again at 0.300, where the
    // first exit takes the rows over: the walk has ended by then.
    let mut rows = vec![row(0, 600); 990];
    rows.extend(vec![row(1, 500); 4]);
    let taken = Row { exits: vec![word(0, 300), word(1, 400)], whole: Some(0), label: None };
    rows.extend(vec![taken; 6]);
    rows.iter_mut()
        .filter(|row| row.exits.len() == 1)
        .for_each(|row| row.exits.push(word(0, None)));
    let found = calibrate(&rows, budget, Loss::Disagreement).unwrap();
    assert_eq!((found.threshold_milli, found.samples, found.answered), (401, 1000, 994));
    let [measured] = found.measured[..] else { panic!("{found:?}") };
    assert_eq!((measured.losses, measured.certified), (4, true));
    assert!(measured.p_value <= 0.05 && measured.upper <= 0.01, "{measured:?}");
    assert!(found.share.0 < 0.994 && 0.994 < found.share.1 && found.share.0 > 0.985);
    // Without the bad stretch it goes down to 0.
    rows.truncate(994);
    assert_eq!(calibrate(&rows, budget, Loss::Disagreement).unwrap().threshold_milli, 0);
}

#[test]
fn what_cannot_be_promised_is_refused() {
    let refused =
        |rows: &[Row], loss| calibrate(rows, budget(0.01, 0.95), loss).unwrap_err().to_string();
    let good = vec![row(0, 600); 300];
    assert_eq!(
        refused(&good[..298], Loss::Disagreement),
        "298 samples are too few: a mean loss of at most 0.01 can be promised with 0.95 confidence \
         from 299 samples on"
    );
    assert!(refused(&[], Loss::Disagreement).starts_with("0 samples are too few"));
    assert!(refused(&good, Loss::Label).starts_with("sample 0 has no label"));
    assert_eq!(
        refused(&vec![row(1, 1000); 300], Loss::Disagreement),
        "no threshold is certified: at 1.000, the strictest, 300 of 300 samples are lost, and at \
         most 0 may be for a budget of 0.01 with 0.95 confidence"
    );
    let bare = vec![Row { exits: vec![], whole: Some(0), label: None }; 300];
    assert_eq!(refused(&bare, Loss::Disagreement), "no stage up to the cut has an exit");
    // An exit that never answers keeps every budget, as long as there are samples to show it.
    let never = vec![row(0, None); 299];
    let found = calibrate(&never, budget(0.01, 0.95), Loss::Disagreement).unwrap();
    assert_eq!((found.threshold_milli, found.answered), (0, 0));
}

/// 2,000 samples on which 60 disagreements begin at 0.500, of which 50 are the whole model's
/// mistakes.
fn labelled() -> Vec<Row> {
    let mut rows = vec![row(0, 900); 1940];
    rows.extend(vec![row(1, 500); 60]);
    for (at, row) in rows.iter_mut().enumerate() {
        row.label = Some(if at >= 1950 { 1 } else { 0 });
    }
    rows
}

#[test]
fn a_threshold_is_certified_for_each_loss_that_allows_it() {
    let by = |loss| calibrate(&labelled(), budget(0.01, 0.95), loss).unwrap();
    let certified = |found: &Calibrated| -> Vec<_> {
        found.measured.iter().map(|one| (one.loss, one.losses, one.certified)).collect()
    };
    let strict = by(Loss::Disagreement);
    assert_eq!(strict.threshold_milli, 501);
    assert_eq!(certified(&strict), [(Loss::Disagreement, 0, true), (Loss::Label, 0, true)]);
    let lax = by(Loss::Label);
    assert_eq!(lax.threshold_milli, 0);
    assert_eq!(certified(&lax), [(Loss::Disagreement, 60, false), (Loss::Label, 10, true)]);
}

#[test]
fn certificates_are_of_what_was_measured_and_no_id_changes() {
    let manifest = Bundle::embedded().unwrap().manifest().clone();
    let data = Digest::of(b"samples");
    let setting = Setting { cut: 0, variant: PLAIN, data, date: "2026-01-31" };
    let of = |loss, manifest: &Manifest| {
        let found = calibrate(&labelled(), budget(0.01, 0.95), loss).unwrap();
        certified(manifest, &found, &setting).unwrap()
    };
    let strict = of(Loss::Disagreement, &manifest);
    strict.validate().unwrap();
    assert_eq!(strict.split_id(0), manifest.split_id(0));
    assert_eq!(strict.heads(0), manifest.heads(0));
    assert_eq!(strict.thresholds_milli(0), [501]);
    assert_eq!(strict.stages[1], manifest.stages[1], "the last exit always answers");
    let keys: Vec<_> = strict.certificates.iter().map(|one| (one.loss, one.bits)).collect();
    let (one, other) = (Loss::Disagreement, Loss::Label);
    assert_eq!(keys, [(one, 4), (one, 8), (other, 4), (other, 8)]);
    let first = &strict.certificates[0];
    assert_eq!((first.samples, first.answered, first.losses), (2000, 1940, 0));
    assert_eq!((first.budget, first.confidence, first.data), (0.01, 0.95, data));
    assert!(first.method.contains("2110.01052"));
    assert_eq!(strict.certified(0, PLAIN, 4).count(), 2);
    assert_eq!(strict.certified(0, "int8", 4).count() + strict.certified(0, PLAIN, 5).count(), 0);
    let mut moved = strict.clone();
    moved.stages[0].exit.as_mut().unwrap().threshold_milli = Some(500);
    assert_eq!(moved.certified(0, PLAIN, 4).count(), 0, "another threshold");
    // Again, for the other loss: certificates of the same key are replaced; the others speak of
    // another threshold now.
    let lax = of(Loss::Label, &strict);
    assert_eq!(lax.thresholds_milli(0), [0]);
    let held: Vec<_> = lax.certified(0, PLAIN, 8).map(|one| (one.loss, one.losses)).collect();
    assert_eq!(held, [(Loss::Label, 10)]);
    let setting = Setting { cut: 1, ..setting };
    let found = calibrate(&labelled(), budget(0.01, 0.95), Loss::Label).unwrap();
    assert_eq!(certified(&manifest, &found, &setting), None, "there is no cut behind the last");
}

#[test]
fn temperatures_are_fitted_on_samples_of_their_own() {
    let manifest = Bundle::embedded().unwrap().manifest().clone();
    // Two classes whose odds are e^3 to 1 where the logits say e^6 to 1: the temperature is 2.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut logits, mut labels) = (vec![], vec![]);
    let chance = 1.0 / (1.0 + (-3f64).exp());
    for _ in 0..20_000 {
        logits.extend([6.0, 0.0]);
        labels.push(Some(usize::from(uniform(&mut rng) >= chance)));
    }
    let logits = Logits::new(2, logits);
    let answers = Answers {
        exits: vec![ExitLogits { stage: 0, logits: logits.clone() }],
        whole: logits,
        labels,
    };
    let refitted = refit(&manifest, &answers, 7);
    let fitted = refitted.manifest.stages[0].exit.as_ref().unwrap().temperature_milli;
    assert!((1900..=2100).contains(&fitted), "{fitted}");
    assert_ne!(refitted.manifest.heads(0), manifest.heads(0));
    assert_eq!(refitted.answers.whole.len(), refitted.left.len());
    assert!((15_500..16_500).contains(&refitted.left.len()));
    let label = answers.labels[refitted.left[9]];
    assert_eq!(refitted.answers.labels[9], label);
    assert_eq!(refit(&manifest, &answers, 7), refitted);
    assert_ne!(refit(&manifest, &answers, 8).left, refitted.left);
}

/// A number in 0..1.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

/// A word of confidence `sure` that is wrong with probability `slope * (1 - sure)`.
fn drawn(rng: &mut ChaCha8Rng, slope: f64) -> Word {
    let sure = uniform(rng);
    let wrong = uniform(rng) < slope * (1.0 - sure);
    word(usize::from(wrong), (sure * 1000.0) as u32)
}

/// The share of rows in which a word of `drawn` is sure and wrong at a threshold.
fn risk(slope: f64, threshold_milli: u32) -> f64 {
    slope * (1.0 - f64::from(threshold_milli) / 1000.0).powi(2) / 2.0
}

/// The plain empirical threshold: the lowest up to which the observed loss keeps the budget.
fn empirical(path: &Path, budget: Budget) -> u32 {
    let most = budget.share() * path.samples as f64;
    let kept = path.steps().take_while(|(_, step)| step.disagreements as f64 <= most);
    kept.last().map_or(STRICTEST, |(threshold, _)| threshold)
}

/// In how many of `draws` draws of `samples` rows the loss at the threshold is above the budget,
/// by our method and by the plain empirical threshold.
fn violations(
    draws: u64,
    samples: usize,
    draw: fn(&mut ChaCha8Rng) -> Row,
    risk: fn(u32) -> f64,
) -> (u32, u32) {
    let budget = budget(0.01, 0.95);
    let (mut ours, mut plain) = (0, 0);
    for seed in 0..draws {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows: Vec<Row> = (0..samples).map(|_| draw(&mut rng)).collect();
        let path = Path::of(&rows);
        let threshold = budget.walk(&path, Loss::Disagreement).unwrap();
        ours += u32::from(risk(threshold) > budget.share());
        plain += u32::from(risk(empirical(&path, budget)) > budget.share());
    }
    (ours, plain)
}

#[test]
fn of_2000_draws_from_a_known_population_at_most_6_5_percent_break_the_bound() {
    let draw =
        |rng: &mut ChaCha8Rng| Row { exits: vec![drawn(rng, 0.5)], whole: Some(0), label: None };
    let (ours, plain) = violations(2000, 5000, draw, |threshold| risk(0.5, threshold));
    // 5 % and three standard deviations; far fewer would mean that the threshold is too strict.
    assert!((60..=130).contains(&ours), "{ours}");
    assert!(plain > 130, "the plain empirical threshold must break it: {plain}");
    println!("2000 draws: {ours} break the bound, {plain} with the plain empirical threshold");
}

#[test]
fn the_bound_holds_for_two_exits_too() {
    // The second exit answers what the first is not sure of.
    let draw = |rng: &mut ChaCha8Rng| {
        let exits = vec![drawn(rng, 0.4), drawn(rng, 0.2)];
        Row { exits, whole: Some(0), label: None }
    };
    let both =
        |threshold| risk(0.4, threshold) + f64::from(threshold) / 1000.0 * risk(0.2, threshold);
    let (ours, plain) = violations(500, 1000, draw, both);
    assert!((5..=40).contains(&ours), "{ours}");
    assert!(plain > 40, "{plain}");
}
