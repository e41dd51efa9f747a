//! Samples out of files: arrays that NumPy wrote, folders of pictures, idx images, data sets of
//! ONNX; and what is refused of each.

use std::fs;
use std::io::Write as _;

use midspan_runtime::test_support;
use proptest::prelude::*;

use super::*;
use crate::preprocess::Preprocess;

fn golden(name: &str) -> Vec<u8> {
    fs::read(golden_path(name)).unwrap()
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn spec(name: &str, element: ElementType, dims: &[Option<usize>]) -> TensorSpec {
    let dim = |size: &Option<usize>| size.map_or(Dim::Symbolic("N".into()), Dim::Fixed);
    TensorSpec { name: name.into(), element, dims: dims.iter().map(dim).collect() }
}

fn image() -> Vec<TensorSpec> {
    vec![spec("image", ElementType::F32, &[None, Some(1), Some(28), Some(28)])]
}

fn fashion() -> Preprocess {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fashion.toml");
    read_preprocess(&models).unwrap()
}

fn take(
    path: &Path,
    inputs: &[TensorSpec],
    options: &LoadOptions<'_>,
) -> Result<Vec<Sample>, String> {
    load(path, inputs, options, &mut |_, _| {}).map_err(|error| error.to_string())
}

/// The numbers of a tensor, whatever their type.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    let size = tensor.element().size().unwrap();
    let number = |bytes: &[u8]| match tensor.element() {
        ElementType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        ElementType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        ElementType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        ElementType::BF16 => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        _ => bytes.iter().rev().fold(0.0, |value, byte| value * 256.0 + f64::from(*byte)),
    };
    tensor.bytes().chunks(size).map(number).collect()
}

#[test]
fn arrays_are_read_as_numpy_wrote_them() {
    let arrays = npy::archive(&golden("arrays.npz"), 1 << 20).unwrap();
    let types = [
        ("c", ElementType::F32),
        ("fortran", ElementType::F32),
        ("big", ElementType::I32),
        ("big_fortran", ElementType::U16),
        ("half", ElementType::F16),
        ("bfloat", ElementType::BF16),
        ("double", ElementType::F64),
    ];
    for (name, element) in types {
        let array = &arrays[name];
        assert_eq!((array.element(), array.shape()), (element, &[2, 3][..]), "{name}");
        assert_eq!(numbers(array), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{name}");
    }
    assert_eq!(arrays["bool"].bytes(), [0, 0, 0, 1, 1, 1]);
    let cube: Vec<f64> = (0..24).map(f64::from).collect();
    assert_eq!((arrays["cube"].shape(), numbers(&arrays["cube"])), (&[2, 3, 4][..], cube));
    let strings = |name: &str| -> Vec<String> {
        let texts = arrays[name].view().strings().map(<[u8]>::to_vec).collect::<Vec<_>>();
        texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
    };
    assert_eq!(
        (strings("text"), strings("bytes")),
        (
            vec!["a".to_owned(), String::new(), "größe".into()],
            vec!["ab".to_owned(), String::new(), "c".into()],
        )
    );
    assert_eq!((arrays["scalar"].shape(), arrays["empty"].shape()), (&[][..], &[0, 3][..]));
    let error = npy::array(&golden("complex.npy")).unwrap_err();
    assert_eq!(error, "arrays of dtype \"<c8\" have no counterpart in a model");
    let error = npy::archive(&golden("arrays.npz"), 200).unwrap_err();
    assert_eq!(error, "its arrays are larger than 200 bytes");
}

/// A `.npy` with this header text.
fn npy_file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

fn f32_file(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    npy_file(&header, bytemuck::cast_slice(values))
}

#[test]
fn damaged_arrays_are_refused() {
    let huge = f32_file("18446744073709551615, 18446744073709551615,", &[1.0]);
    let short = f32_file("2, 2,", &[1.0, 2.0]);
    let deep = npy_file(&"(".repeat(5000), &[]);
    let header = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }";
    let mut long = npy_file("", &[]);
    long.truncate(6);
    long.extend([2, 0, 255, 255, 255, 255]);
    let files = [huge, short, deep, npy_file(header, &[0; 4]), long, b"\x93NUMPY".to_vec()];
    for file in files {
        assert!(npy::array(&file).is_err(), "{:?}", String::from_utf8_lossy(&file));
    }
    let error = npy::array(&f32_file("2, 2,", &[1.0])).unwrap_err();
    assert_eq!(error, "4 bytes of data do not fill an array of shape [2, 2] and dtype \"<f4\"");
}

proptest! {
    #[test]
    fn arrays_from_anyone_never_panic(at in 0usize..200, byte: u8, cut in 0usize..300) {
        let mut file = f32_file("2, 3,", &[0.0; 6]);
        let end = cut.min(file.len());
        let at = at.min(file.len() - 1);
        file[at] = byte;
        let _read_or_refused = npy::array(&file[..end]);
        let _read_or_refused = npy::archive(&file[..end], 1 << 16);
    }
}

#[test]
fn the_first_axis_counts_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    fs::write(&path, f32_file("4, 2,", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])).unwrap();
    let shapes = |dims: &[Option<usize>]| -> Result<Vec<Vec<usize>>, String> {
        let samples = take(&path, &[spec("x", ElementType::F32, dims)], &LoadOptions::default())?;
        Ok(samples.iter().map(|sample| sample.single().unwrap().shape().to_vec()).collect())
    };
    assert_eq!(shapes(&[None, Some(2)]).unwrap(), vec![vec![1, 2]; 4]);
    assert_eq!(shapes(&[Some(1), Some(2)]).unwrap(), vec![vec![1, 2]; 4]);
    assert_eq!(
        shapes(&[Some(2), Some(2)]).unwrap(),
        vec![vec![2, 2]; 2],
        "a batch of a fixed size"
    );
    assert_eq!(shapes(&[Some(2)]).unwrap(), vec![vec![2]; 4], "no batch");
    assert_eq!(shapes(&[]).unwrap(), vec![vec![1, 2]; 4], "unknown dimensions");
    let error = shapes(&[None, Some(3)]).unwrap_err();
    assert!(error.ends_with("x.npy: its shape [4, 2] is none of samples along the first axis for input \"x\" of shape [N,3]"), "{error}");
    assert!(shapes(&[Some(3), Some(2)]).is_err(), "4 rows are no batches of 3");
    let ints = spec("x", ElementType::I64, &[None, Some(2)]);
    let error = take(&path, &[ints], &LoadOptions::default()).unwrap_err();
    assert!(
        error.ends_with("it holds FP32, but input \"x\" is INT64: convert it first"),
        "{error}"
    );
    let two = [spec("a", ElementType::F32, &[]), spec("b", ElementType::F32, &[])];
    assert!(take(&path, &two, &LoadOptions::default()).unwrap_err().contains(".npz"));
}

#[test]
fn labels_follow_the_samples_that_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (path, labels) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
    fs::write(&path, f32_file("4, 1,", &[0.0, 1.0, 2.0, 3.0])).unwrap();
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }";
    fs::write(&labels, npy_file(header, &[10, 11, 12, 13])).unwrap();
    let input = [spec("x", ElementType::F32, &[None, Some(1)])];
    let options = LoadOptions { labels: Some(&labels), limit: Some(2), ..Default::default() };
    let samples = take(&path, &input, &options).unwrap();
    let found: Vec<_> =
        samples.iter().map(|sample| (numbers(sample.single().unwrap())[0], sample.label)).collect();
    assert_eq!(found, [(1.0, Some(11)), (3.0, Some(13))]);
    fs::write(&labels, npy_file(&header.replace("(4,)", "(3,)"), &[1, 2, 3])).unwrap();
    let error = take(&path, &input, &options).unwrap_err();
    assert!(error.ends_with("y.npy: 3 labels for 4 samples"), "{error}");
    let negative = header.replace("|u1", "|i1");
    fs::write(&labels, npy_file(&negative, &[1, 2, 3, 255])).unwrap();
    assert!(take(&path, &input, &options).unwrap_err().contains("integers from 0 on"));
}

#[test]
fn several_inputs_come_from_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let write = |arrays: &[(&str, Vec<u8>)]| {
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (name, bytes) in arrays {
            let options = zip::write::SimpleFileOptions::default();
            archive.start_file(format!("{name}.npy"), options).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
    };
    let inputs = [
        spec("a", ElementType::F32, &[None, Some(1)]),
        spec("b", ElementType::F32, &[None, Some(2)]),
    ];
    let labels = npy_file(
        "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
        &[[5, 0, 0, 0, 0, 0, 0, 0]; 2].concat(),
    );
    let a = || f32_file("2, 1,", &[1.0, 2.0]);
    write(&[("a", a()), ("b", f32_file("2, 2,", &[3.0; 4])), ("labels", labels.clone())]);
    let samples = take(&path, &inputs, &LoadOptions::default()).unwrap();
    assert_eq!((samples.len(), samples[1].label, samples[1].inputs.len()), (2, Some(5), 2));
    write(&[("a", a()), ("b", f32_file("1, 2,", &[3.0; 2]))]);
    let error = take(&path, &inputs, &LoadOptions::default()).unwrap_err();
    assert!(error.ends_with("1 samples for input \"b\", 2 for the first one"), "{error}");
    write(&[("a", a())]);
    let error = take(&path, &inputs, &LoadOptions::default()).unwrap_err();
    assert!(error.ends_with("no array for input \"b\" among [\"a\"]"), "{error}");
}

#[test]
fn a_folder_holds_pictures_by_class() {
    let folder = tempfile::tempdir().unwrap();
    for (class, names) in [("3", ["b.png", "a.PNG"]), ("12", ["c.png", "notes.txt"])] {
        fs::create_dir(folder.path().join(class)).unwrap();
        for name in names {
            fs::write(folder.path().join(class).join(name), golden("grey.png")).unwrap();
        }
    }
    fs::write(folder.path().join("z.jpg"), golden("rgb.jpg")).unwrap();
    let preprocess = fashion();
    let options = LoadOptions { preprocess: Some(&preprocess), ..Default::default() };
    let mut calls = vec![];
    let samples =
        load(folder.path(), &image(), &options, &mut |done, all| calls.push((done, all))).unwrap();
    let labels: Vec<_> = samples.iter().map(|sample| sample.label).collect();
    assert_eq!(labels, [None, Some(12), Some(3), Some(3)]);
    assert_eq!(calls, [(1, 4), (2, 4), (3, 4), (4, 4)]);
    assert_eq!(samples[1].single().unwrap(), &preprocess.picture(&golden("grey.png")).unwrap());
    assert_eq!(samples[1].picture.as_deref(), Some(golden("grey.png").as_slice()));
    let error = take(folder.path(), &image(), &LoadOptions::default()).unwrap_err();
    assert!(
        error.ends_with("z.jpg: a picture needs a preprocessing to become an input"),
        "{error}"
    );
    let small = [spec("image", ElementType::F32, &[None, Some(3), Some(8), Some(8)])];
    let error = take(folder.path(), &small, &options).unwrap_err();
    assert!(error.contains("it becomes FP32 [1, 1, 28, 28]"), "{error}");
    fs::write(folder.path().join("a.png"), b"no picture").unwrap();
    let error = take(folder.path(), &image(), &options).unwrap_err();
    assert!(error.ends_with("a.png: not a PNG, JPEG or WebP picture"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(take(empty.path(), &image(), &options).unwrap_err().ends_with("it holds no samples"));
}

#[test]
fn idx_images_are_the_labelled_set() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fashion-labelled");
    let (images, labels) =
        (folder.join("images-idx3-ubyte.gz"), folder.join("labels-idx1-ubyte.gz"));
    let bundle = crate::Bundle::embedded().unwrap();
    let expected = spread(of_labelled(&bundle.labelled().unwrap().unwrap(), "image"), 5);
    let options = LoadOptions { labels: Some(&labels), limit: Some(5), ..Default::default() };
    assert_eq!(take(&images, &image(), &options).unwrap(), expected);
    let preprocess = fashion();
    let options = LoadOptions { preprocess: Some(&preprocess), ..options };
    let pictures = take(&images, &image(), &options).unwrap();
    assert_eq!(digest(&pictures), digest(&expected));
    let png = pictures[0].picture.as_deref().unwrap();
    assert_eq!(&preprocess.picture(png).unwrap(), pictures[0].single().unwrap());
    let plain = tempfile::tempdir().unwrap();
    let path = plain.path().join("images");
    fs::write(
        &path,
        [&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28][..], &[51; 784]].concat(),
    )
    .unwrap();
    let samples = take(&path, &image(), &LoadOptions::default()).unwrap();
    assert!(samples[0].single().unwrap().f32s().unwrap().iter().all(|value| *value == 0.2));
    fs::write(&path, [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255])
        .unwrap();
    let error = take(&path, &image(), &LoadOptions::default()).unwrap_err();
    assert!(error.contains("do not suit"), "{error}");
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "text").unwrap();
    let error = take(&path, &image(), &LoadOptions::default()).unwrap_err();
    assert!(
        error.ends_with("notes.txt: neither a folder, a picture, an .npy or .npz, nor idx images"),
        "{error}"
    );
    let error = take(&folder.path().join("none"), &image(), &LoadOptions::default()).unwrap_err();
    assert!(error.contains("none: No such file"), "{error}");
    fs::write(&path, "colour = \"grey\"\n").unwrap();
    assert!(read_preprocess(&path).unwrap_err().to_string().contains("notes.txt: missing field"));
}

#[test]
fn data_sets_of_onnx_are_read() {
    use prost::Message as _;

    use crate::onnx::pb::TensorProto;

    test_support::library();
    let folder = tempfile::tempdir().unwrap();
    let proto = TensorProto {
        data_type: Some(1),
        dims: vec![1, 2],
        float_data: vec![1.0, 2.0],
        ..Default::default()
    };
    for set in ["test_data_set_0", "test_data_set_1"] {
        fs::create_dir(folder.path().join(set)).unwrap();
        fs::write(folder.path().join(set).join("input_0.pb"), proto.encode_to_vec()).unwrap();
    }
    let input = [spec("x", ElementType::F32, &[None, Some(2)])];
    let samples = take(folder.path(), &input, &LoadOptions::default()).unwrap();
    assert_eq!((samples.len(), numbers(samples[1].single().unwrap())), (2, vec![1.0, 2.0]));
    let one =
        take(&folder.path().join("test_data_set_1"), &input, &LoadOptions::default()).unwrap();
    assert_eq!(one.len(), 1);
    let missing = [input[0].clone(), spec("y", ElementType::F32, &[])];
    let error = take(folder.path(), &missing, &LoadOptions::default()).unwrap_err();
    assert!(error.contains("test_data_set_0/input_1.pb: No such file"), "{error}");
}

#[test]
fn values_of_onnx_tensors_lie_in_the_field_of_their_type() {
    use crate::onnx::pb::TensorProto;

    let of = |data_type, fill: fn(&mut TensorProto)| {
        let mut proto =
            TensorProto { data_type: Some(data_type), dims: vec![2], ..Default::default() };
        fill(&mut proto);
        tensor_of(&proto).map(|tensor| (tensor.element(), tensor.into_bytes()))
    };
    let words = |proto: &mut TensorProto| proto.int32_data = vec![1, -1];
    assert_eq!(of(3, words), Ok((ElementType::I8, vec![1, 255])));
    assert_eq!(of(10, words), Ok((ElementType::F16, vec![1, 0, 255, 255])));
    assert_eq!(of(6, words), Ok((ElementType::I32, vec![1, 0, 0, 0, 255, 255, 255, 255])));
    assert_eq!(
        of(12, |p| p.uint64_data = vec![1, 2]),
        Ok((ElementType::U32, vec![1, 0, 0, 0, 2, 0, 0, 0]))
    );
    assert_eq!(
        of(9, |p| p.raw_data = Some(vec![1, 0].into())),
        Ok((ElementType::Bool, vec![1, 0]))
    );
    assert_eq!(
        of(8, |p| p.string_data = vec!["a".into(), "".into()]),
        Ok((ElementType::String, vec![1, 0, 0, 0, b'a', 0, 0, 0, 0]))
    );
    assert!(of(1, |p| p.float_data = vec![1.0]).unwrap_err().contains("needs 8 bytes"));
    assert!(of(1, |p| p.dims = vec![-1]).is_err() && of(1, |p| p.dims = vec![1 << 60]).is_err());
    assert_eq!(of(17, |_| {}).unwrap_err(), "tensors of ONNX type 17 are not supported");
    assert!(of(1, |p| p.data_location = Some(1)).unwrap_err().contains("another file"));
}
