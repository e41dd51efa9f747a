//! A real library runs a model of two bytes of protobuf more than nothing: an identity, written
//! out field by field so that this crate needs no protobuf.

use super::*;
use crate::pool::SessionPool;
use crate::test_support;

fn field(number: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(payload.len()).unwrap()];
    bytes.extend_from_slice(payload);
    bytes
}

fn value_info(name: &str, element: ElementType) -> Vec<u8> {
    let dims = [field(1, &field(2, b"N")), field(1, &[1 << 3, 2])].concat();
    let number = u8::try_from(element.onnx_number()).unwrap();
    let tensor = [vec![1 << 3, number], field(2, &dims)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// `y = Identity(x)` over `[N,2]` of any type, as an ONNX file.
fn identity(element: ElementType) -> Vec<u8> {
    let node = [field(1, b"x"), field(2, b"y"), field(4, b"Identity")].concat();
    let graph = [
        field(1, &node),
        field(2, b"g"),
        field(11, &value_info("x", element)),
        field(12, &value_info("y", element)),
    ]
    .concat();
    [vec![1 << 3, 8], field(7, &graph), field(8, &[2 << 3, 17])].concat()
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
    let mut session = load(ElementType::String);
    let bad = Tensor::from_strings(vec![1, 2], &[&b"\xff"[..], b""]).unwrap();
    let error = session.run(&[("x", bad.view())]).unwrap_err();
    assert_eq!(error.to_string(), "input \"x\": a BYTES element is not UTF-8");
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
