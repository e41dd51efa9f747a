#!/usr/bin/env bash
# Copies these cases out of the suite that tests/suite/generate.sh writes, unchanged.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=${1:-$here/../../../../target/onnx-suite}
for case in \
    node/test_attention_4d_fp16_expanded \
    node/test_bernoulli_expanded \
    node/test_nllloss_NC_expanded \
    node/test_range_bfloat16_type_positive_delta_expanded \
    node/test_reduce_log_sum_empty_set_expanded \
    node/test_sequence_map_identity_1_sequence_expanded \
    node/test_softmax_example_expanded \
    pytorch-converted/test_PixelShuffle \
    pytorch-operator/test_operator_index \
    simple/test_sequence_model2; do
    rm -rf "${here:?}/$case"
    mkdir -p "$here/$(dirname "$case")"
    cp -r "$suite/$case" "$here/$case"
done
