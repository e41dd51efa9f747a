//! Writing tensors as an `.npz`, which numpy reads one array at a time.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use midspan_runtime::{ElementType, Tensor};
use zip::write::SimpleFileOptions;

/// Bytes before an array's data are a multiple of this.
const ALIGNMENT: usize = 64;

/// numpy's name of a type, if it has one.
fn descr(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::Bool => "|b1",
        ElementType::U8 => "|u1",
        ElementType::U16 => "<u2",
        ElementType::U32 => "<u4",
        ElementType::U64 => "<u8",
        ElementType::I8 => "|i1",
        ElementType::I16 => "<i2",
        ElementType::I32 => "<i4",
        ElementType::I64 => "<i8",
        ElementType::F16 => "<f2",
        ElementType::F32 => "<f4",
        ElementType::F64 => "<f8",
        ElementType::BF16 | ElementType::String => return None,
    })
}

/// The head of an `.npy` file, version 1.0.
fn head(tensor: &Tensor) -> Option<Vec<u8>> {
    let sizes: String = tensor.shape().iter().map(|size| format!("{size},")).collect();
    let descr = descr(tensor.element())?;
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let fixed = b"\x93NUMPY\x01\x00".len() + 2;
    let padded = (fixed + text.len() + 1).next_multiple_of(ALIGNMENT) - fixed;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    let length = u16::try_from(text.len()).ok()?;
    Some([b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], text.as_bytes()].concat())
}

/// Writes the inputs of each row as arrays called `<row>.<number of the input>`.
///
/// # Errors
/// As text: a row without an input, a type that numpy does not have, or what the file system said.
pub(super) fn write(
    path: &Path,
    inputs: &[&str],
    rows: &[Vec<(String, Tensor)>],
) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(|error| said(&error))?;
    let mut zip = zip::ZipWriter::new(std::io::BufWriter::new(file));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (row, tensors) in rows.iter().enumerate() {
        for (index, name) in inputs.iter().enumerate() {
            let found = tensors.iter().find(|(found, _)| found == name);
            let (_, tensor) = found.ok_or_else(|| format!("sample {row} has no \"{name}\""))?;
            let head = head(tensor).ok_or_else(|| {
                format!("input \"{name}\" is {}: the tools cannot read it", tensor.element())
            })?;
            zip.start_file(format!("{row}.{index}.npy"), stored).map_err(|error| said(&error))?;
            zip.write_all(&head).map_err(|error| said(&error))?;
            zip.write_all(tensor.bytes()).map_err(|error| said(&error))?;
        }
    }
    let mut file = zip.finish().map_err(|error| said(&error))?;
    file.flush().map_err(|error| said(&error))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read as _};

    use super::*;

    #[test]
    fn arrays_are_read_back_by_another_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        let float = Tensor::from_f32s(vec![1, 3], &[1.0, -2.5, 3.0]).unwrap();
        let scalar = Tensor::new(ElementType::I64, vec![], 7i64.to_le_bytes().to_vec()).unwrap();
        let row = vec![("b".to_owned(), scalar), ("a".to_owned(), float)];
        write(&path, &["a", "b"], &[row.clone(), row.clone()]).unwrap();
        let mut zip = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
        let mut entry = |name: &str| {
            let mut bytes = Vec::new();
            zip.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let array = npyz::NpyFile::new(Cursor::new(entry("1.0.npy"))).unwrap();
        assert_eq!(array.shape(), [1, 3]);
        assert_eq!(array.into_vec::<f32>().unwrap(), [1.0, -2.5, 3.0]);
        let array = npyz::NpyFile::new(Cursor::new(entry("0.1.npy"))).unwrap();
        assert!(array.shape().is_empty());
        assert_eq!(array.into_vec::<i64>().unwrap(), [7]);
        let error = write(&path, &["c"], &[row]).unwrap_err();
        assert_eq!(error, "sample 0 has no \"c\"");
        let text = Tensor::from_strings(vec![1], &["x"]).unwrap();
        let error = write(&path, &["t"], &[vec![("t".into(), text)]]).unwrap_err();
        assert!(error.contains("is BYTES"), "{error}");
    }
}
