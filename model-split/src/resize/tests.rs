//! What must hold for any filter; exact pixels are tested with preprocessing.

use super::*;

fn flat(width: usize, height: usize, channels: usize) -> Pixels {
    let value = |index: usize| [200, 3, 77][index % channels];
    let data = (0..width * height * channels).map(value).collect();
    Pixels { width, height, channels, data }
}

#[test]
fn flat_pictures_stay_flat_at_any_size() {
    let some = [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Hamming];
    for filter in some.into_iter().chain([Filter::Bicubic, Filter::Lanczos]) {
        for channels in [1, 3] {
            for (width, height) in [(1, 1), (3, 50), (50, 3), (17, 17)] {
                let resized = resize(&flat(17, 11, channels), width, height, filter);
                assert_eq!(resized, flat(width, height, channels), "{filter:?}");
            }
        }
    }
}

#[test]
fn the_same_size_is_the_same_picture() {
    let data = (0..=255).collect();
    let picture = Pixels { width: 16, height: 16, channels: 1, data };
    assert_eq!(resize(&picture, 16, 16, Filter::Bicubic), picture);
}

#[test]
fn bicubic_overshoot_is_clipped() {
    let data = [0, 0, 0, 255, 255, 255].repeat(2);
    let picture = Pixels { width: 6, height: 2, channels: 1, data };
    let row = resize(&picture, 24, 2, Filter::Bicubic).data[..24].to_vec();
    assert!(row.is_sorted(), "clipped on both sides: {row:?}");
    assert_eq!((row[0], row[23]), (0, 255));
}
