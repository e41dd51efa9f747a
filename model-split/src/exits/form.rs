//! How the tensor of a cut becomes the features that a head reads: `[N,C,H,W]` is averaged over a
//! grid of k x k, `[N,T,D]` over its sequence, everything else is taken as it is. Bin `i` of an
//! axis of length `n` holds the places `floor(i n / k)` up to `ceil((i + 1) n / k)`, as PyTorch's
//! AdaptiveAvgPool has them: bins overlap where k does not divide n, and none is empty. It must not
//! know what the features are for.

use std::borrow::Cow;
use std::ops::Range;

use half::f16;
use midspan_runtime::{Dim, ElementType, Tensor, TensorSpec};

/// Most elements of a tensor that is taken as it is.
const MOST_ELEMENTS: usize = 16_384;
/// The finest grid.
pub const MOST_GRID: usize = 7;

/// How one tensor becomes features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The mean of each channel of `[N,C,...]`, whatever the size of the rest.
    Mean {
        /// Channels.
        channels: usize,
    },
    /// The means of each channel of `[N,C,H,W]` over a grid.
    Grid {
        /// Channels.
        channels: usize,
        /// Height of the tensor.
        height: usize,
        /// Width of the tensor.
        width: usize,
        /// Bins along each of the two; at least 2.
        grid: usize,
    },
    /// The mean over the sequence of `[N,T,D]`.
    Sequence {
        /// Size of one place of the sequence, D.
        width: usize,
    },
    /// All elements of a row.
    Flat {
        /// Their number.
        elements: usize,
    },
}

/// Whether elements of this type can be read as numbers, by [`numbers`] and by ONNX's `Cast`.
pub(super) fn is_number(element: ElementType) -> bool {
    use ElementType::{F16, F32, F64, I8, I32, U8};
    matches!(element, F32 | F16 | F64 | U8 | I8 | I32)
}

/// The elements of a tensor as `f32`; none for types that are no numbers.
pub(super) fn numbers(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
    let bytes = tensor.bytes();
    Some(Cow::Owned(match tensor.element() {
        ElementType::F32 => return tensor.f32s().ok(),
        ElementType::F16 => {
            bytes.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()
        }
        ElementType::F64 => {
            bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect()
        }
        ElementType::I32 => {
            bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b) as f32).collect()
        }
        ElementType::U8 => bytes.iter().map(|byte| f32::from(*byte)).collect(),
        ElementType::I8 => bytes.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
        _ => return None,
    }))
}

/// The places of an axis of `size` that bin `index` of `bins` averages.
pub(super) fn bin(index: usize, bins: usize, size: usize) -> Range<usize> {
    index * size / bins..((index + 1) * size).div_ceil(bins)
}

/// Why there is no way from a tensor to features.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no head can read \"{name}\" ({element} {dims}): {reason}")]
pub struct FormError {
    name: String,
    element: ElementType,
    dims: String,
    reason: &'static str,
}

impl Form {
    /// The form of a tensor at a grid of `grid` x `grid`; none where the tensor has no such grid:
    /// it is smaller, its size is open, or it is no picture and the grid is not 1.
    ///
    /// # Errors
    /// When no head can read the tensor at any grid.
    pub fn of(spec: &TensorSpec, grid: usize) -> Result<Option<Self>, FormError> {
        let refuse = |reason| FormError {
            name: spec.name.clone(),
            element: spec.element,
            dims: spec.dims_text(),
            reason,
        };
        if !is_number(spec.element) {
            return Err(refuse("its elements are no numbers of a common type"));
        }
        let sizes: Vec<Option<usize>> = spec
            .dims
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => Some(*size).filter(|size| *size > 0),
                Dim::Symbolic(_) => None,
            })
            .collect();
        let form = match (sizes.as_slice(), grid) {
            ([_, Some(channels), _, _], 1) => Self::Mean { channels: *channels },
            ([_, Some(channels), Some(height), Some(width)], 2..=MOST_GRID) => {
                if grid > *height.min(width) {
                    return Ok(None);
                }
                Self::Grid { channels: *channels, height: *height, width: *width, grid }
            }
            ([_, Some(_), _, _], _) => return Ok(None),
            ([_, _, Some(width)], 1) => Self::Sequence { width: *width },
            ([_, rest @ ..], 1) if !rest.is_empty() => {
                let elements = rest.iter().try_fold(1usize, |all, size| all.checked_mul((*size)?));
                let elements = elements.ok_or_else(|| refuse("its size is open"))?;
                if elements > MOST_ELEMENTS {
                    return Err(refuse("it is too large to be read as it is"));
                }
                Self::Flat { elements }
            }
            ([_, _, ..], _) => return Ok(None),
            _ => return Err(refuse("it has no rows, or its rank is not known")),
        };
        Ok(Some(form))
    }

    /// Bins along each axis of a picture; 1 for everything else.
    pub fn grid(&self) -> usize {
        if let Self::Grid { grid, .. } = self { *grid } else { 1 }
    }

    /// Features of one row.
    pub fn features(&self) -> usize {
        match *self {
            Self::Mean { channels } => channels,
            Self::Grid { channels, grid, .. } => channels * grid * grid,
            Self::Sequence { width } => width,
            Self::Flat { elements } => elements,
        }
    }

    /// Appends the features of one row to `out`; false, and nothing appended, when the tensor is
    /// not of this form.
    pub(super) fn read(&self, shape: &[usize], values: &[f32], out: &mut Vec<f32>) -> bool {
        match (*self, shape) {
            (Self::Mean { channels }, [1, size, ..]) if *size == channels && !values.is_empty() => {
                out.extend(values.chunks_exact(values.len() / channels).map(mean));
            }
            (Self::Grid { channels, height, width, grid }, &[1, c, h, w])
                if (c, h, w) == (channels, height, width) =>
            {
                for plane in values.chunks_exact(height * width) {
                    let bins = (0..grid).flat_map(|row| (0..grid).map(move |column| (row, column)));
                    out.extend(bins.map(|(row, column)| {
                        let columns = bin(column, grid, width);
                        let rows = bin(row, grid, height);
                        let count = rows.len() * columns.len();
                        let sum: f64 = rows
                            .flat_map(|y| &plane[y * width..][columns.clone()])
                            .map(|value| f64::from(*value))
                            .sum();
                        (sum / count as f64) as f32
                    }));
                }
            }
            (Self::Sequence { width }, [1, places, size]) if *size == width && *places > 0 => {
                out.extend((0..width).map(|at| {
                    let sum: f64 =
                        values.iter().skip(at).step_by(width).map(|value| f64::from(*value)).sum();
                    (sum / *places as f64) as f32
                }));
            }
            (Self::Flat { elements }, [1, ..]) if values.len() == elements => out.extend(values),
            _ => return false,
        }
        true
    }
}

fn mean(values: &[f32]) -> f32 {
    let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
    (sum / values.len() as f64) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dims: &[i64]) -> TensorSpec {
        let dim = |size: &i64| usize::try_from(*size).map_or(Dim::Symbolic("N".into()), Dim::Fixed);
        let dims = dims.iter().map(dim).collect();
        TensorSpec { name: "z".into(), element: ElementType::F32, dims }
    }

    #[test]
    fn bins_are_those_of_adaptive_pooling() {
        let bins = |bins, size| (0..bins).map(|at| bin(at, bins, size)).collect::<Vec<_>>();
        assert_eq!(bins(3, 5), [0..2, 1..4, 3..5]);
        assert_eq!(bins(2, 4), [0..2, 2..4]);
        assert_eq!(bins(7, 14).last(), Some(&(12..14)));
        assert_eq!(bins(3, 7), [0..3, 2..5, 4..7]);
        assert_eq!(bins(7, 7), (0..7).map(|at| at..at + 1).collect::<Vec<_>>());
    }

    #[test]
    fn each_kind_of_tensor_has_its_forms() {
        let of = |dims: &[i64], grid| Form::of(&spec(dims), grid).unwrap();
        assert_eq!(of(&[-1, 8, 7, 5], 1), Some(Form::Mean { channels: 8 }));
        let grid = Form::Grid { channels: 8, height: 7, width: 5, grid: 5 };
        assert_eq!(of(&[-1, 8, 7, 5], 5), Some(grid));
        assert_eq!(grid.features(), 200);
        assert_eq!(of(&[-1, 8, 7, 5], 6), None);
        assert_eq!(of(&[1, 8, -1, -1], 1), Some(Form::Mean { channels: 8 }));
        assert_eq!(of(&[1, 8, -1, -1], 3), None);
        assert_eq!(of(&[-1, -1, 64], 1), Some(Form::Sequence { width: 64 }));
        assert_eq!(of(&[-1, 12, 64], 3), None);
        assert_eq!(of(&[-1, 100], 1), Some(Form::Flat { elements: 100 }));
        let refused = |dims: &[i64]| Form::of(&spec(dims), 1).unwrap_err().to_string();
        assert_eq!(
            refused(&[-1, 3, -1, 4, 4]),
            "no head can read \"z\" (FP32 [N,3,N,4,4]): its size is open"
        );
        assert!(refused(&[-1, 20_000]).ends_with("too large to be read as it is"));
        assert!(refused(&[]).ends_with("its rank is not known"));
        let text = TensorSpec { element: ElementType::String, ..spec(&[-1, 4]) };
        assert!(Form::of(&text, 1).unwrap_err().to_string().contains("no numbers"));
    }

    #[test]
    fn features_are_means() {
        let read = |form: Form, shape: &[usize], values: &[f32]| {
            let mut out = vec![];
            form.read(shape, values, &mut out).then_some(out)
        };
        let ramp: Vec<f32> = (0..12).map(|at| at as f32).collect();
        let grid = Form::Grid { channels: 1, height: 3, width: 4, grid: 2 };
        // Rows 0..2 and 1..3, columns 0..2 and 2..4.
        assert_eq!(read(grid, &[1, 1, 3, 4], &ramp).unwrap(), [2.5, 4.5, 6.5, 8.5]);
        assert_eq!(read(Form::Mean { channels: 2 }, &[1, 2, 2, 3], &ramp).unwrap(), [2.5, 8.5]);
        assert_eq!(
            read(Form::Sequence { width: 4 }, &[1, 3, 4], &ramp).unwrap(),
            [4.0, 5.0, 6.0, 7.0]
        );
        assert_eq!(read(Form::Flat { elements: 12 }, &[1, 3, 4], &ramp).unwrap(), ramp);
        assert_eq!(read(grid, &[1, 1, 4, 3], &ramp), None);
        assert_eq!(read(Form::Mean { channels: 2 }, &[2, 2, 3], &ramp), None);
        assert_eq!(read(Form::Flat { elements: 11 }, &[1, 12], &ramp), None);
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        let read = |element, bytes: &[u8]| {
            let size = ElementType::size(element).unwrap();
            let tensor = Tensor::new(element, vec![bytes.len() / size], bytes.to_vec()).unwrap();
            numbers(&tensor).unwrap().into_owned()
        };
        assert_eq!(read(ElementType::I8, &[255, 2]), [-1.0, 2.0]);
        assert_eq!(read(ElementType::U8, &[255, 2]), [255.0, 2.0]);
        assert_eq!(read(ElementType::F16, &f16::from_f32(1.5).to_le_bytes()), [1.5]);
        assert_eq!(read(ElementType::F64, &(-2.5f64).to_le_bytes()), [-2.5]);
        assert_eq!(read(ElementType::I32, &(-7i32).to_le_bytes()), [-7.0]);
        assert!(numbers(&Tensor::new(ElementType::Bool, vec![1], vec![1]).unwrap()).is_none());
    }
}
