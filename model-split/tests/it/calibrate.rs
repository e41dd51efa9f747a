//! Does the promise of a certificate hold on real data? Thresholds are found on random halves of a
//! set and judged on all of it. The plain empirical threshold, the lowest whose observed loss keeps
//! the budget, must break the bound often, or the check would show nothing.

use std::path::{Path as FilePath, PathBuf};

use midspan_runtime::test_support;
use midspan_split::answers::{Subject, answers};
use midspan_split::calibrate::{Budget, Path, Row, STRICTEST, calibrate, rows};
use midspan_split::manifest::{Loss, PLAIN};
use midspan_split::samples::of_labelled;
use midspan_split::{Bundle, Labelled};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const DRAWS: u64 = 200;
/// Of 200 draws 10 may break a bound of 95 % on average; more than 18 with a probability of 0.6 %.
const MOST: usize = 18;

fn repository(name: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The default model's exit and whole model on a labelled set.
fn default_rows(labelled: &Labelled) -> Vec<Row> {
    test_support::library();
    let bundle = Bundle::embedded().unwrap();
    let file = std::fs::read(repository("models/fashion.onnx")).unwrap();
    let subject = Subject { bundle: &bundle, whole: Some(&file), variant: PLAIN, cut: 0 };
    let found = answers(&subject, &of_labelled(labelled, "image"), &mut |_| {}).unwrap();
    rows(bundle.manifest(), &found)
}

/// What came of all draws.
struct Outcome {
    /// Draws whose threshold breaks the bound on the whole set.
    violations: usize,
    /// The same for the plain empirical threshold.
    plain: usize,
    /// Median share of the whole set that exits answer at the threshold.
    share: f64,
}

/// The lowest threshold up to which the observed loss keeps the budget.
fn empirical(path: &Path, budget: Budget, loss: Loss) -> u32 {
    let most = budget.share() * path.samples as f64;
    let kept = path.steps().take_while(|(_, step)| step.losses(loss) as f64 <= most);
    kept.last().map_or(STRICTEST, |(threshold, _)| threshold)
}

fn draw(all: &[Row], budget: Budget, loss: Loss) -> Outcome {
    let population = Path::of(all);
    let share = |count: u64| count as f64 / population.samples as f64;
    let breaks = |threshold| share(population.at(threshold).losses(loss)) > budget.share();
    let (mut violations, mut plain, mut shares) = (0, 0, vec![]);
    for seed in 0..DRAWS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut drawn: Vec<Row> = all.to_vec();
        let half = drawn.len() / 2;
        for at in 0..half {
            let left = (drawn.len() - at) as u64;
            drawn.swap(at, at + (rng.next_u64() % left) as usize);
        }
        drawn.truncate(half);
        let threshold = calibrate(&drawn, budget, loss).unwrap().threshold_milli;
        violations += usize::from(breaks(threshold));
        plain += usize::from(breaks(empirical(&Path::of(&drawn), budget, loss)));
        shares.push(share(population.at(threshold).answered));
    }
    shares.sort_by(f64::total_cmp);
    Outcome { violations, plain, share: shares[shares.len() / 2] }
}

#[test]
fn thresholds_of_random_halves_keep_the_budget_of_the_labelled_samples() {
    let bundle = Bundle::embedded().unwrap();
    let all = default_rows(&bundle.labelled().unwrap().unwrap());
    let budget = Budget::new(0.03, 0.95).unwrap();
    for (loss, least) in [(Loss::Disagreement, 0.7), (Loss::Label, 0.75)] {
        let Outcome { violations, plain, share } = draw(&all, budget, loss);
        println!("{loss:?}: {violations} and {plain} of {DRAWS} break the bound, share {share:.3}");
        assert!(violations <= MOST && plain > MOST, "{loss:?}: {violations}, plain {plain}");
        assert!(share >= least, "{loss:?}: {share}");
    }
}

/// `model-split/measure/calibrate.sh` fetches the images and runs this.
#[test]
#[ignore = "needs the 10,000 test images of Fashion-MNIST"]
fn thresholds_of_random_halves_keep_the_budget_of_10000_images() {
    let file = |name| {
        let path = repository("target/datasets/fashion-mnist").join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (images, labels) = (file("t10k-images-idx3-ubyte.gz"), file("t10k-labels-idx1-ubyte.gz"));
    let all = default_rows(&Labelled::from_idx_gz(&images, &labels).unwrap());
    assert_eq!(all.len(), 10_000);
    let budget = Budget::new(0.01, 0.95).unwrap();
    println!("loss          above the budget  plain threshold above  median share at the edge");
    for (loss, least) in [(Loss::Disagreement, 0.72), (Loss::Label, 0.76)] {
        let Outcome { violations, plain, share } = draw(&all, budget, loss);
        let name = format!("{loss:?}");
        let percent = share * 100.0;
        println!(
            "{name:12}  {violations:3} of {DRAWS}        {plain:3} of {DRAWS}             {percent:.2} %"
        );
        assert!(violations <= MOST && plain > MOST, "{loss:?}: {violations}, plain {plain}");
        assert!(share >= least, "{loss:?}: {share}");
    }
}
