//! A real library runs models of one operator.

use super::*;
use crate::pool::SessionPool;
use crate::test_support;

/// `[N,2]`
fn dims() -> [Dim; 2] {
    [Dim::Symbolic("N".into()), Dim::Fixed(2)]
}

/// `y = Identity(x)` over `[N,2]` of any type.
fn identity(element: ElementType) -> Vec<u8> {
    test_support::model("Identity", &[], (element, &dims()), (element, &dims()))
}

fn load(element: ElementType) -> Session {
    test_support::library();
    Session::load(&identity(element), &SessionOptions::default(), None).unwrap()
}

#[test]
fn every_element_type_passes_unchanged() {
    let numeric = [
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
        ElementType::I8,
        ElementType::I16,
        ElementType::I32,
        ElementType::I64,
        ElementType::F16,
        ElementType::BF16,
        ElementType::F32,
        ElementType::F64,
    ];
    for element in numeric {
        let mut session = load(element);
        let bytes: Vec<u8> = (1..=6 * element.size().unwrap() as u8).collect();
        // The same values at every misalignment.
        for start in 0..8 {
            let mut shifted = vec![0; start];
            shifted.extend_from_slice(&bytes);
            let input = TensorRef::new(element, &[3, 2], &shifted[start..]).unwrap();
            let output = session.run(&[("x", input)]).unwrap();
            assert_eq!(output, [input.to_tensor()], "{element} at {start}");
        }
    }
    let mut session = load(ElementType::String);
    let input = Tensor::from_strings(vec![1, 2], &["", "h\u{e9}"]).unwrap();
    assert_eq!(session.run(&[("x", input.view())]).unwrap(), [input]);
}

#[test]
fn values_that_a_type_may_not_hold_are_the_callers_mistake() {
    let mut session = load(ElementType::Bool);
    let good = Tensor::new(ElementType::Bool, vec![1, 2], vec![0, 1]).unwrap();
    assert_eq!(session.run(&[("x", good.view())]).unwrap(), [good]);
    let bad = Tensor::new(ElementType::Bool, vec![1, 2], vec![0, 2]).unwrap();
    let error = session.run(&[("x", bad.view())]).unwrap_err();
    assert!(error.is_caller(), "{error}");
}

#[test]
fn strings_of_any_bytes_pass_unchanged() {
    let mut session = load(ElementType::String);
    let long: Vec<u8> = (0..1 << 20).map(|at| (at % 256) as u8).collect();
    let every: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte; usize::from(byte)]).collect();
    let every: Vec<&[u8]> = every.iter().map(Vec::as_slice).collect();
    let cases: [&[&[u8]]; 6] = [
        &[b"", b""],
        &[b"\xff\0a", b""],
        &[b"\0", b"h\xc3\xa9\0b"],
        &[&long, b"\xed\xa0\x80"],
        &[b"", &long, &long[1..], b"\0\0"],
        &every,
    ];
    for case in cases {
        let input = Tensor::from_strings(vec![case.len() / 2, 2], case).unwrap();
        let output = session.run(&[("x", input.view())]).unwrap();
        assert_eq!(output, [input]);
    }
    let none = Tensor::from_strings::<&[u8]>(vec![0, 2], &[]).unwrap();
    assert_eq!(session.run(&[("x", none.view())]).unwrap(), [none]);
    let any = test_support::model(
        "Identity",
        &[],
        (ElementType::String, &[]),
        (ElementType::String, &[]),
    );
    let mut session = Session::load(&any, &SessionOptions::default(), None).unwrap();
    let scalar = Tensor::from_strings(vec![], &[b"\xfe\0"]).unwrap();
    assert_eq!(session.run(&[("x", scalar.view())]).unwrap(), [scalar]);
}

#[test]
fn an_operator_that_wants_text_refuses_other_bytes_as_the_callers_mistake() {
    test_support::library();
    let dims = [Dim::Fixed(1), Dim::Symbolic("N".into())];
    // The one locale that every machine has.
    let lower = [("case_change_action", "LOWER"), ("locale", "C")];
    let ends = (ElementType::String, &dims[..]);
    let model = test_support::model("StringNormalizer", &lower, ends, ends);
    let mut session = Session::load(&model, &SessionOptions::default(), None).unwrap();
    let good = Tensor::from_strings(vec![1, 2], &["A", "bC"]).unwrap();
    let lower = [Tensor::from_strings(vec![1, 2], &["a", "bc"]).unwrap()];
    assert_eq!(session.run(&[("x", good.view())]).unwrap(), lower);
    for bad in [&b"\xff\xfeA"[..], b"\xc3", b"A\xed\xa0\x80"] {
        let input = Tensor::from_strings(vec![1, 2], &[&b"ok"[..], bad]).unwrap();
        let error = session.run(&[("x", input.view())]).unwrap_err();
        assert!(error.is_caller(), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("input \"x\": element 1 is not UTF-8, and the model"), "{text}");
        // It goes on afterwards.
        assert_eq!(session.run(&[("x", good.view())]).unwrap(), lower);
    }
}

#[test]
fn input_is_borrowed_at_a_fit_address_and_copied_at_any_other() {
    let memory = [0u64; 4];
    let memory: &[u8] = bytemuck::cast_slice(&memory);
    for (element, size) in [(ElementType::U8, 1), (ElementType::F16, 2), (ElementType::F64, 8)] {
        for start in 0..8 {
            let bytes = &memory[start..start + 16];
            let shape = [16 / size];
            let tensor = TensorRef::new(element, &shape, bytes).unwrap();
            let aligned = Aligned::of(&tensor);
            let borrowed = matches!(aligned, Aligned::Borrowed(_));
            assert_eq!(borrowed, start % size == 0, "{element} at {start}");
            assert_eq!(aligned.bytes().as_ptr() == bytes.as_ptr(), borrowed);
        }
    }
}

#[test]
fn specs_keep_symbolic_dimensions_and_empty_batches_run() {
    let mut session = load(ElementType::F32);
    assert_eq!(session.inputs()[0].dims_text(), "[N,2]");
    assert_eq!(session.outputs()[0].dims, [Dim::Symbolic("N".into()), Dim::Fixed(2)]);
    let none = Tensor::from_f32s(vec![0, 2], &[]).unwrap();
    assert_eq!(session.run(&[("x", none.view())]).unwrap(), [none]);
}

#[test]
fn garbage_is_refused_without_harm() {
    test_support::library();
    for garbage in [&b""[..], b"not a model", &identity(ElementType::F32)[..40]] {
        let error = Session::load(garbage, &SessionOptions::default(), None).err().unwrap();
        assert!(matches!(error, LoadError::Model(_)), "{error}");
    }
}

#[test]
fn element_types_that_came_later_are_refused_without_harm() {
    test_support::library();
    let bf16 = (ElementType::BF16, &dims()[..]);
    let mut model = test_support::model("Transpose", &[], bf16, bf16);
    // Unsigned integers of 2 bits, which Transpose takes from operator set 25 on: the last byte.
    let (bf16, uint2, element_type) = (16, 25, 8);
    *model.last_mut().unwrap() = 25;
    let typed = |(at, pair): (usize, &[u8])| (pair == [element_type, bf16]).then_some(at + 1);
    for at in model.windows(2).enumerate().filter_map(typed).collect::<Vec<_>>() {
        model[at] = uint2;
    }
    let error = Session::load(&model, &SessionOptions::default(), None).err().unwrap();
    assert!(matches!(&error, LoadError::Unsupported { name, .. } if name == "x"), "{error}");
    let described = describe(&model).unwrap();
    let others: Vec<&str> = described.others.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(others, ["x", "y"]);
    assert!(described.inputs.is_empty() && described.outputs.is_empty());
}

#[test]
fn a_pool_of_sessions_shares_weights_and_runs_from_many_threads() {
    test_support::library();
    let prepacked = Prepacked::new().unwrap();
    let model = identity(ElementType::I32);
    let pool = SessionPool::new(3, || {
        Session::load(&model, &SessionOptions::default(), Some(&prepacked))
            .map(|session| Box::new(session) as Box<dyn Executor>)
    })
    .unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let pool = &pool;
            scope.spawn(move || {
                for value in 0..100u8 {
                    let bytes = vec![value; 8];
                    let input = Tensor::new(ElementType::I32, vec![1, 2], bytes).unwrap();
                    assert_eq!(pool.run_on(worker, &[("x", input.view())]).unwrap(), [input]);
                }
            });
        }
    });
}

#[test]
fn a_scalar_is_told_from_a_tensor_of_unknown_rank() {
    test_support::library();
    let bare = ElementType::F32;
    let sum = test_support::model("ReduceSum", &[], (bare, &dims()), (bare, &[]));
    // Where the model declares nothing, the library infers; a size is a scalar.
    assert_eq!(describe(&sum).unwrap().outputs[0].dims_text(), "[1,1]");
    let any = describe(&test_support::model("Relu", &[], (bare, &[]), (bare, &[]))).unwrap();
    assert_eq!((any.outputs[0].dims.len(), any.scalars.len()), (0, 0));
    let size = test_support::model("Size", &[], (bare, &dims()), (ElementType::I64, &[]));
    let size = describe(&size).unwrap();
    assert_eq!((size.outputs[0].dims.len(), size.scalars), (0, vec!["y".to_owned()]));
}

#[test]
fn a_model_is_loaded_from_its_file() {
    test_support::library();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), identity(ElementType::F32)).unwrap();
    let described = describe_path(file.path()).unwrap();
    assert_eq!(described, describe(&identity(ElementType::F32)).unwrap());
    let mut session = Session::load_path(file.path(), &SessionOptions::default(), None).unwrap();
    let input = Tensor::from_f32s(vec![1, 2], &[1.0, 2.0]).unwrap();
    assert_eq!(session.run(&[("x", input.view())]).unwrap(), [input]);
    let missing = describe_path(&file.path().with_extension("no")).unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}
