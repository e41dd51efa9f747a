//! Models with weights beside their files, written by hand.

use super::*;
use crate::onnx::pb;

fn weight(name: &str, values: usize) -> pb::TensorProto {
    pb::TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(1),
        dims: vec![values as i64],
        ..Default::default()
    }
}

fn model(weights: Vec<pb::TensorProto>) -> ModelProto {
    let graph = pb::GraphProto { initializer: weights, ..Default::default() };
    ModelProto { graph: Some(graph), ..Default::default() }
}

fn data(model: &ModelProto, index: usize) -> Vec<u8> {
    let weight = &model.graph.as_ref().unwrap().initializer[index];
    weight.raw_data.as_ref().map(|data| data.to_vec()).unwrap_or_default()
}

#[test]
fn small_weights_beside_a_file_go_inside_of_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w"), (0..24).collect::<Vec<u8>>()).unwrap();
    let (mut first, mut second) = (weight("a", 2), weight("b", 4));
    external::point(&mut first, "w", 16, 8);
    external::point(&mut second, "w", 0, 16);
    // Without a length, type and shape say how much it is.
    second.external_data.retain(|entry| entry.key() == "location");
    let model = model(vec![first, second]);
    let out = folder.path().join("out.onnx");
    let written = write(&model, folder.path(), &out, false).unwrap();
    assert_eq!(written.data, None);
    let back = open(&out).unwrap();
    assert_eq!(external::first_external(&back.model), None);
    assert_eq!(data(&back.model, 0), (16..24).collect::<Vec<u8>>());
    assert_eq!(data(&back.model, 1), (0..16).collect::<Vec<u8>>());
    let again = write(&model, folder.path(), &out, false).unwrap_err().to_string();
    assert!(again.ends_with("exists: it is not overwritten without --force"), "{again}");
    write(&model, folder.path(), &out, true).unwrap();
    let own = write(&model, folder.path(), &folder.path().join("w"), true).unwrap_err();
    assert!(matches!(own, FileError::Source(_)), "{own}");
}

#[test]
fn many_weights_go_into_a_file_beside_with_holes_for_zeros() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let source = File::create(folder.path().join("w")).unwrap();
    source.set_len(INLINE).unwrap();
    let (mut large, mut marked, mut small) =
        (weight("large", 60 << 20), weight("marked", 4 << 20), weight("small", 2));
    external::point(&mut large, "w", 0, 240 << 20);
    external::point(&mut marked, "w", 240 << 20, 16 << 20);
    external::point(&mut small, "w", 8, 8);
    let mut file = source;
    file.seek(SeekFrom::Start((240 << 20) + 5)).unwrap();
    file.write_all(&[7]).unwrap();
    let out = folder.path().join("out.onnx");
    let written = write(&model(vec![large, marked, small]), folder.path(), &out, false).unwrap();
    let (path, size) = written.data.unwrap();
    assert_eq!((path.file_name().unwrap().to_str().unwrap(), size), ("out.onnx.data", INLINE));
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.len() == INLINE && metadata.blocks() * 512 < INLINE / 4);
    let back = open(&out).unwrap();
    let weights = &back.model.graph.as_ref().unwrap().initializer;
    assert_eq!(data(&back.model, 2).len(), 8, "small tensors stay in the file");
    let span = external::locate(&weights[1], &back.folder).unwrap();
    let mut bytes = Vec::new();
    span.open("marked").unwrap().take(8).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 0, 7, 0, 0]);
}

#[test]
fn a_weight_that_is_not_where_it_should_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("w"), [0; 16]).unwrap();
    fs::write(folder.path().join("secret"), [0; 16]).unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret"), inner.join("link")).unwrap();
    let refused = |location: &str, offset: &str, length: &str| {
        let mut tensor = weight("a", 2);
        external::point(&mut tensor, location, 0, 8);
        tensor.external_data[1].value = Some(offset.to_owned());
        tensor.external_data[2].value = Some(length.to_owned());
        let error = external::locate(&tensor, &inner).unwrap_err().to_string();
        assert!(error.starts_with("weight \"a\": "), "{error}");
        error.replace(inner.to_str().unwrap(), "DIR")[12..].to_owned()
    };
    let outside = |path: &str| format!("location \"{path}\" is no file in the model's folder");
    for path in ["../secret", "/etc/passwd", "", ".", "link"] {
        assert_eq!(refused(path, "0", "8"), outside(path));
    }
    assert_eq!(refused("w", "9", "8"), "bytes 9..+8 are not in DIR/w, which has 16");
    let far = u64::MAX.to_string();
    assert_eq!(refused("w", &far, "8"), format!("bytes {far}..+8 are not in DIR/w, which has 16"));
    assert_eq!(refused("w", "-1", "8"), "offset \"-1\" is no number of bytes");
    assert_eq!(refused("w", "0", "9"), "its type and shape need 8 bytes, 9 are stated");
    assert!(refused("missing", "0", "8").starts_with("cannot read DIR/missing: "));
}
