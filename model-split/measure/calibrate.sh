#!/bin/sh
# Do certified thresholds keep their promise on the 10,000 test images of Fashion-MNIST? 200 times a
# random half is calibrated on and all images are the judge; fails when the bound is broken more
# than 18 times. Also prints how often the plain empirical threshold breaks it, and the median share
# of images that the exit answers.
#
# Example:  model-split/measure/calibrate.sh
set -eu
cd "$(dirname "$0")/../.."
model-split/measure/fashion.sh >/dev/null
exec cargo test --release -p midspan-split --features tools --test it -- \
    --ignored --nocapture thresholds_of_random_halves_keep_the_budget_of_10000_images
