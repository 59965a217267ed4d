//! View models as text.

use stepgraph::compile::{Options, compile};
use stepgraph::data::Request;
use stepgraph::model::{DataSource, DataSpec, Header, LastBatch, LayerPath, LossSpec, SplitKind, TargetColumn, check};
use stepgraph::select::{Isa, Target};
use stepgraph::studio::document::presets;
use stepgraph::studio::view_models::PlanView;
use stepgraph::studio::view_models::data::{DataKey, load_view};
use stepgraph::studio::view_models::inspector::InspectorView;
use stepgraph::studio::view_models::network::NetworkView;
use stepgraph::studio::{commands::Selection, view_models::related::Related};

fn plan() -> PlanView {
    let model = check(&presets::digits()).model.expect("sound");
    PlanView::new(std::sync::Arc::new(compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).expect("compiles")))
}

#[test]
fn the_network_has_one_line_for_each_layer() {
    let preset = presets::digits();
    let checked = check(&preset);
    let text = NetworkView::new(&preset, Some(&checked), None, None, &[]).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "0 Dense units=128 activation=relu bias=true -> [128] 8320 params");
    assert!(lines[1].starts_with("1 Dropout rate=0.") && lines[1].ends_with(" -> [128] 0 params"), "{text}");
    assert_eq!(lines[2..], ["2 Dense units=10 activation=none bias=true -> [10] 1290 params"]);
}

#[test]
fn mistakes_are_on_the_layers_that_cause_them() {
    let mut preset = presets::digits();
    preset.layers.remove(2);
    preset.layers.insert(0, stepgraph::model::LayerKind::from_name("conv2d").expect("known").example());
    preset.input.batch = 0;
    let text = NetworkView::new(&preset, Some(&check(&preset)), None, None, &[]).to_string();
    assert!(text.contains("Input ! input.batch: found 0; expected at least 1"), "{text}");
    preset.input.batch = 8;
    let text = NetworkView::new(&preset, Some(&check(&preset)), None, None, &[]).to_string();
    assert!(
        text.starts_with("0 Conv2d filters=16 kernel=3")
            && text.contains("  ! : found an input of shape [64]; conv2d takes an image"),
        "{text}"
    );
}

#[test]
fn the_step_has_one_row_for_each_operation() {
    let plan = plan();
    let row = plan.ops[0].to_string();
    assert!(
        row.starts_with("0 F L0:Dense gemm gemm_bias_relu_f32_avx2_v0 [m=64 n=128 k=64] 1.0 M FLOP ")
            && row.ends_with(" µs"),
        "{row}"
    );
    let forward = plan.ops.iter().filter(|o| o.matches("forward dense")).count();
    assert_eq!(forward, 2);
    assert!(plan.ops.iter().all(|o| !o.matches("no such kernel")));
}

#[test]
fn the_arena_adds_up() {
    let plan = plan();
    let a = &plan.arena;
    assert_eq!(a.by_role.iter().map(|(_, b)| b).sum::<u64>(), a.unshared_bytes);
    assert_eq!(a.live_bytes.iter().max(), Some(&a.lower_bound_bytes));
    assert!(a.rects.iter().all(|r| r.offset + r.bytes <= a.arena_bytes && a.rect(r.id) == Some(r)));
    assert!(a.attempts.iter().any(|t| t.chosen && t.bytes == a.arena_bytes));
    let params = a.rects.iter().find(|r| r.name == "params").expect("parameters");
    assert!(params.tooltip().starts_with("params\nparam f32["), "{}", params.tooltip());
}

#[test]
fn the_capture_plan_distinguishes_frozen_from_live() {
    let view = plan().capture;
    assert_eq!(view.layers.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["L0:Dense", "L1:Dropout", "L2:Dense"]);
    assert_eq!(view.layers[0].cells[0].as_ref().expect("y").texts[0], "[64, 128]");
    assert!(view.constants.iter().any(|c| c.live && c.name == "hyper"));
    assert!(view.constants.iter().any(|c| !c.live && c.name == "beta1" && c.value == "0.9"));
}

#[test]
fn a_selection_reaches_layers_ops_and_buffers() {
    let plan = plan();
    let layer = Related::new(&Selection::Layer(LayerPath::from([0])), Some(&plan.compiled));
    let op = *layer.ops.first().expect("an operation");
    let of_op = Related::new(&Selection::Op(op), Some(&plan.compiled));
    assert!(of_op.layers.contains(&LayerPath::from([0])));
    let buffer = *of_op.buffers.first().expect("a buffer");
    assert!(Related::new(&Selection::Buffer(buffer), Some(&plan.compiled)).ops.contains(&op));
    let page = InspectorView::new(&Selection::Op(op), &presets::digits(), Some(&plan), &[]).to_string();
    assert!(page.contains("layer -> L0:Dense") && page.contains("[Rejected candidates]"), "{page}");
    let page =
        InspectorView::new(&Selection::Layer(LayerPath::from([0])), &presets::digits(), Some(&plan), &[0.5, 0.25])
            .to_string();
    assert!(page.contains("weight: [64, 128]  Δ 0.5000"), "{page}");
}

#[test]
fn the_notes_of_data_say_what_the_training_part_lacks() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "1,2,ant\n".repeat(6) + &"2,1,bee\n".repeat(2)).unwrap();
    let key = |loss, target| DataKey {
        spec: DataSpec {
            source: DataSource::Csv {
                path: "t.csv".into(),
                header: Header::Auto,
                target,
                columns: Vec::new(),
                standardize: true,
                delimiter: ',',
            },
            held_out: 2.0,
            split: SplitKind::Last,
            last_batch: LastBatch::Drop,
            buckets: Vec::new(),
        },
        request: Request {
            inputs: vec![stepgraph::model::NamedInput::only([2].into())],
            output: [2].into(),
            loss,
            seed: 0,
        },
        has_network: true,
        base: folder.path().to_owned(),
    };
    let text = load_view(&key(LossSpec::SOFTMAX_CROSS_ENTROPY, TargetColumn::Last)).unwrap().to_string();
    assert!(
        text.contains("note: no training sample is of the class \"bee\", so the network cannot learn it"),
        "{text}"
    );
    assert!(text.contains("note: the table is read without a header, so columns are identified by position"), "{text}");
    std::fs::write(folder.path().join("t.csv"), "a,a,y\n1,2,1000\n2,1,3000\n".to_owned() + &"1,1,0\n".repeat(2))
        .unwrap();
    let mut values = key(LossSpec::MSE, TargetColumn::Last);
    values.request.output = [1].into();
    let text = load_view(&values).unwrap().to_string();
    assert!(text.contains("note: the header repeats names") && text.contains("\"a.1\""), "{text}");
    assert!(text.contains("the standard deviation of the target \"y\" is 1000 over the training samples"), "{text}");
}
