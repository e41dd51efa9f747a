//! Labelled grey images in the idx format (gzipped), as the MNIST family of data sets has them.
//! Sizes are bounded before anything is allocated. It must not know of models.

use std::io::Read;

use flate2::read::GzDecoder;
use midspan_runtime::Tensor;

/// Most bytes of unpacked images, four times the training set of MNIST.
const LARGEST_IMAGES: u64 = 256 << 20;
/// Most samples of one set.
const MOST_SAMPLES: u64 = 1 << 22;

/// Why files are no labelled images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelledError {
    /// Not gzip, or cut short.
    #[error("{file}: {reason}")]
    Gzip {
        /// Which of the two files.
        file: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// Not idx of the expected kind.
    #[error("{file}: not an idx{dims} file of u8")]
    Kind {
        /// Which of the two files.
        file: &'static str,
        /// Number of dimensions expected.
        dims: u8,
    },
    /// A header that promises more than is allowed, or another number of bytes than there are.
    #[error("{file}: {dims:?} samples, rows and columns do not suit its {got} bytes of data")]
    Size {
        /// Which of the two files.
        file: &'static str,
        /// Dimensions in the header.
        dims: Vec<u32>,
        /// Bytes after it.
        got: usize,
    },
    /// Not one label per image.
    #[error("{images} images, but {labels} labels")]
    Count {
        /// Number of images.
        images: usize,
        /// Number of labels.
        labels: usize,
    },
}

/// Images of equal size and their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    rows: usize,
    columns: usize,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// The dimensions and the data of an idx file of u8, gzipped or not.
pub(crate) fn read_idx(
    file: &'static str,
    raw: &[u8],
    dims: u8,
    limit: u64,
) -> Result<(Vec<u32>, Vec<u8>), LabelledError> {
    let mut unpacked = Vec::new();
    let bytes = if raw.starts_with(&[0, 0]) {
        raw
    } else {
        GzDecoder::new(raw)
            .take(limit + 17)
            .read_to_end(&mut unpacked)
            .map_err(|error| LabelledError::Gzip { file, reason: error.to_string() })?;
        &unpacked
    };
    let kind = LabelledError::Kind { file, dims };
    let (magic, rest) = bytes.split_at_checked(4).ok_or(kind.clone())?;
    let (head, data) = rest.split_at_checked(4 * usize::from(dims)).ok_or(kind.clone())?;
    if magic != [0, 0, 8, dims] {
        return Err(kind);
    }
    let (words, _) = head.as_chunks::<4>();
    let sizes: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
    let product = sizes.iter().try_fold(1u64, |all, size| all.checked_mul(u64::from(*size)));
    if product != Some(data.len() as u64) || data.len() as u64 > limit {
        return Err(LabelledError::Size { file, dims: sizes, got: data.len() });
    }
    Ok((sizes, data.to_vec()))
}

impl Labelled {
    /// Reads gzipped images (idx3) and labels (idx1).
    ///
    /// # Errors
    /// When one of them is damaged, too large or does not suit the other.
    pub fn from_idx_gz(images: &[u8], labels: &[u8]) -> Result<Self, LabelledError> {
        let (sizes, pixels) = read_idx("images", images, 3, LARGEST_IMAGES)?;
        let (_, labels) = read_idx("labels", labels, 1, MOST_SAMPLES)?;
        let [count, rows, columns] = sizes.as_slice() else {
            return Err(LabelledError::Kind { file: "images", dims: 3 });
        };
        let (count, rows, columns) = (*count as usize, *rows as usize, *columns as usize);
        if rows == 0 || columns == 0 {
            return Err(LabelledError::Size { file: "images", dims: sizes, got: pixels.len() });
        }
        if count != labels.len() {
            return Err(LabelledError::Count { images: count, labels: labels.len() });
        }
        Ok(Self { rows, columns, pixels, labels })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Rows and columns of an image.
    pub fn size(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// The class of a sample.
    pub fn label(&self, index: usize) -> Option<usize> {
        self.labels.get(index).map(|label| usize::from(*label))
    }

    /// The grey values of a sample, row by row.
    pub fn pixels(&self, index: usize) -> Option<&[u8]> {
        if index >= self.len() {
            return None;
        }
        self.pixels.chunks_exact(self.rows * self.columns).nth(index)
    }

    /// A sample as a model input of shape `[1,1,rows,columns]`, grey values divided by 255.
    pub fn tensor(&self, index: usize) -> Option<Tensor> {
        let values: Vec<f32> =
            self.pixels(index)?.iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        Tensor::from_f32s(vec![1, 1, self.rows, self.columns], &values).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn images(count: u8, data: &[u8]) -> Vec<u8> {
        gz(&[&[0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 2], data].concat())
    }

    fn labels(data: &[u8]) -> Vec<u8> {
        gz(&[&[0, 0, 8, 1, 0, 0, 0, data.len() as u8], data].concat())
    }

    #[test]
    fn samples_become_tensors() {
        let set = Labelled::from_idx_gz(&images(2, &[0, 255, 51, 102]), &labels(&[7, 3])).unwrap();
        assert_eq!((set.len(), set.size(), set.label(1)), (2, (1, 2), Some(3)));
        let tensor = set.tensor(1).unwrap();
        assert_eq!(tensor.shape(), [1, 1, 1, 2]);
        assert_eq!(&*tensor.f32s().unwrap(), [0.2, 0.4]);
        assert!(set.tensor(2).is_none() && set.pixels(2).is_none() && set.label(2).is_none());
    }

    #[test]
    fn hostile_and_damaged_files_are_refused() {
        let good = labels(&[1]);
        let huge = gz(&[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert!(matches!(
            Labelled::from_idx_gz(&huge, &good),
            Err(LabelledError::Size { file: "images", .. })
        ));
        let cut = images(2, &[1, 2, 3]);
        assert!(matches!(Labelled::from_idx_gz(&cut, &good), Err(LabelledError::Size { .. })));
        assert_eq!(
            Labelled::from_idx_gz(&images(2, &[1, 2, 3, 4]), &good),
            Err(LabelledError::Count { images: 2, labels: 1 })
        );
        assert!(matches!(
            Labelled::from_idx_gz(b"plain", &good),
            Err(LabelledError::Gzip { file: "images", .. })
        ));
        assert!(matches!(Labelled::from_idx_gz(&good, &good), Err(LabelledError::Kind { .. })));
    }
}
