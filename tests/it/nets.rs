//! Random valid networks over every layer, loss and optimizer, and a step of one with a batch in it: what property tests draw from.

use std::sync::Arc;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cpu::Pool;
use stepgraph::model::layers::{
    ActivationLayer, BatchNorm, Conv2d, Dense, Dropout, LayerNorm, Padding, Pool as Window, Repeat, Residual,
};
use stepgraph::model::{
    Activation, InputSpec, LayerSpec, LossSpec, Model, OptimizerSpec, ParamId, Precision, Preset, Rng, check,
    init_values,
};
use stepgraph::tensor::{DType, Shape};

/// How large the networks are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Elements of one sample that no value exceeds.
    pub sample: usize,
    /// Layers in the outermost list, at most.
    pub layers: usize,
    pub batch: usize,
}

/// Networks whose plain-loop f64 step takes a fraction of a millisecond.
pub const SMALL: Size = Size { sample: 400, layers: 6, batch: 6 };
/// Networks whose operations are large enough for threads to share.
pub const LARGE: Size = Size { sample: 6_000, layers: 5, batch: 48 };

struct Generator {
    rng: Rng,
    size: Size,
}

/// The network of a seed: the same on every machine.
pub fn random_preset(seed: u64, size: Size) -> Preset {
    let mut g = Generator { rng: Rng::new(seed, 0x4E45_5453), size };
    loop {
        let preset = g.preset(seed);
        if check(&preset).model.is_some() {
            return preset;
        }
    }
}

impl Generator {
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.rng.below(high - low + 1)
    }

    fn coin(&mut self, share: f64) -> bool {
        self.rng.uniform() < share
    }

    fn preset(&mut self, seed: u64) -> Preset {
        let side = if self.size.sample > 1_000 { 16 } else { 9 };
        let shape = if self.coin(0.6) {
            Shape::from([self.between(1, 5), self.between(3, side), self.between(3, side)])
        } else {
            Shape::from([self.between(1, self.size.sample / 16)])
        };
        let batch = self.between(2.max(self.size.batch / 2), self.size.batch);
        let count = self.between(1, self.size.layers);
        let (mut layers, output) = self.layers(count, &shape, 0, false);
        let loss = if self.coin(0.6) {
            if output.rank() == 3 {
                layers.push(if self.coin(0.5) { LayerSpec::Flatten } else { LayerSpec::GlobalAvgPool });
            }
            let units = self.between(2, 12);
            layers.push(LayerSpec::Dense(Dense { units, activation: None, bias: self.coin(0.8) }));
            LossSpec::SoftmaxCrossEntropy { label_smoothing: if self.coin(0.3) { 0.1 } else { 0.0 } }
        } else {
            LossSpec::Mse
        };
        Preset {
            name: format!("random-{seed}"),
            about: String::new(),
            input: InputSpec { shape, batch },
            layers,
            loss,
            optimizer: self.optimizer(),
            precision: Precision::F32,
            data: None,
            train: None,
        }
    }

    fn optimizer(&mut self) -> OptimizerSpec {
        let weight_decay = if self.coin(0.4) { self.rng.range(1e-4, 1e-2) } else { 0.0 };
        let lr = self.rng.range(1e-4, 1e-2);
        match self.rng.below(4) {
            0 => OptimizerSpec::Sgd { lr, momentum: 0.0, nesterov: false, weight_decay },
            1 => OptimizerSpec::Sgd { lr, momentum: 0.9, nesterov: self.coin(0.5), weight_decay },
            kind => OptimizerSpec::Adam { lr, betas: [0.9, 0.99], eps: 1e-8, weight_decay, decoupled: kind == 2 },
        }
    }

    /// `count` layers that fit each other; with `keep`, each keeps the shape.
    fn layers(&mut self, count: usize, input: &Shape, depth: usize, keep: bool) -> (Vec<LayerSpec>, Shape) {
        let (mut layers, mut shape) = (Vec::new(), input.clone());
        while layers.len() < count {
            let layer = self.layer(&shape, depth, keep);
            // A layer that keeps a large input's shape is always allowed, so that this ends.
            let limit = self.size.sample.max(shape.len());
            if let Some(output) = output_of(&layer, &shape).filter(|o| o.len() <= limit && (!keep || *o == shape)) {
                layers.push(layer);
                shape = output;
            }
        }
        (layers, shape)
    }

    fn layer(&mut self, shape: &Shape, depth: usize, keep: bool) -> LayerSpec {
        let image = shape.rank() == 3;
        match self.rng.below(if depth < 3 { 15 } else { 13 }) {
            0 | 1 => {
                let units = if keep {
                    shape.0[shape.rank() - 1]
                } else {
                    self.between(1, if image { 9 } else { self.size.sample / 12 })
                };
                LayerSpec::Dense(Dense { units, activation: self.activation(), bias: self.coin(0.7) })
            }
            2..=4 if image => self.conv(shape, keep),
            5 => LayerSpec::BatchNorm(BatchNorm { momentum: self.rng.range(0.05, 0.5), ..BatchNorm::default() }),
            6 => LayerSpec::LayerNorm(LayerNorm::default()),
            7 | 8 => LayerSpec::Activation(ActivationLayer { function: self.function() }),
            9 if image => self.pool(keep),
            10 if !keep && self.coin(0.5) => {
                if image && self.coin(0.3) {
                    LayerSpec::GlobalAvgPool
                } else {
                    LayerSpec::Flatten
                }
            }
            11 | 12 => LayerSpec::Dropout(Dropout { rate: self.rng.range(0.0, 0.6) }),
            13 => LayerSpec::Residual(Residual { layers: self.block(shape, depth) }),
            14 => LayerSpec::Repeat(Repeat { times: self.between(1, 3), layers: self.block(shape, depth) }),
            _ => LayerSpec::Activation(ActivationLayer { function: self.function() }),
        }
    }

    fn block(&mut self, shape: &Shape, depth: usize) -> Vec<LayerSpec> {
        let count = self.between(1, 3);
        self.layers(count, shape, depth + 1, true).0
    }

    fn function(&mut self) -> Activation {
        Activation::ALL[self.rng.below(Activation::ALL.len())]
    }

    fn activation(&mut self) -> Option<Activation> {
        self.coin(0.6).then(|| self.function())
    }

    fn conv(&mut self, shape: &Shape, keep: bool) -> LayerSpec {
        let channels = shape.0[0];
        let divisors: Vec<usize> = (1..=channels).filter(|d| channels.is_multiple_of(*d)).collect();
        let groups = if self.coin(0.4) { divisors[self.rng.below(divisors.len())] } else { 1 };
        let (bias, activation) = (self.coin(0.6), self.activation());
        if keep {
            let kernel = [1, 3][self.rng.below(2)];
            return LayerSpec::Conv2d(Conv2d { groups, bias, ..Conv2d::same(channels, kernel, activation) });
        }
        let widest = if self.size.sample > 1_000 { 16 } else { 6 };
        let filters = groups * self.between(1, (widest / groups).max(1));
        let (kernel, stride) = ([self.between(1, 4), self.between(1, 4)], [self.between(1, 3), self.between(1, 2)]);
        let dilation = if self.coin(0.3) { [self.between(1, 3), self.between(1, 2)] } else { [1, 1] };
        let padding = match self.rng.below(3) {
            0 => Padding::Valid,
            1 if kernel.iter().all(|k| k % 2 == 1) => Padding::Same,
            _ => Padding::Fixed([self.between(0, 2), self.between(0, 3)]),
        };
        LayerSpec::Conv2d(Conv2d { filters, kernel, stride, padding, dilation, groups, bias, activation })
    }

    fn pool(&mut self, keep: bool) -> LayerSpec {
        let window = if keep {
            Window { size: [3, 3], stride: [1, 1], padding: [1, 1] }
        } else {
            let size = [self.between(1, 3), self.between(1, 3)];
            Window {
                size,
                stride: [self.between(1, 3), self.between(1, 2)],
                padding: size.map(|s| self.rng.below(s / 2 + 1)),
            }
        };
        if self.coin(0.5) { LayerSpec::MaxPool2d(window) } else { LayerSpec::AvgPool2d(window) }
    }
}

/// A layer's output for an input, where it takes it: the checker's own answer.
fn output_of(layer: &LayerSpec, input: &Shape) -> Option<Shape> {
    let preset = Preset {
        name: String::new(),
        about: String::new(),
        input: InputSpec { shape: input.clone(), batch: 2 },
        layers: vec![layer.clone()],
        loss: LossSpec::Mse,
        optimizer: OptimizerSpec::Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.0 },
        precision: Precision::F32,
        data: None,
        train: None,
    };
    check(&preset).facts.first()?.output.clone()
}

/// The checked model of a preset without mistakes.
pub fn model(preset: &Preset) -> Model {
    let checked = check(preset);
    checked.model.unwrap_or_else(|| panic!("{}: {:?}", preset.name, checked.diagnostics))
}

/// A compiled step with parameters away from their symmetric starts and one random batch, the same for every target and precision.
pub fn prepared(model: &Model, options: &Options, seed: u64) -> (Step, Pool) {
    let threads = options.target.as_cpu().unwrap().threads;
    let compiled = compile(model, options).unwrap_or_else(|e| panic!("{}: {e}", model.name));
    let mut step = Step::new(Arc::new(compiled), threads).unwrap();
    for (index, param) in model.params.iter().enumerate() {
        let mut rng = Rng::new(seed, 0x9000 + index as u64);
        let jitter = |v: f32| if param.kind.is_trained() { v + rng.range(-0.2, 0.2) as f32 } else { v };
        let values: Vec<f32> = init_values(param, index, seed).into_iter().map(jitter).collect();
        write_param(&mut step, ParamId(index as u32), &values);
    }
    let program = step.compiled().plan.program.clone();
    let mut rng = Rng::new(seed, 0xBA7C);
    let samples: Vec<f32> = (0..model.batch * model.input.len()).map(|_| rng.normal() as f32).collect();
    match program.real {
        DType::F64 => step.set_x(&widen(&samples)).unwrap(),
        _ => step.set_x(&samples).unwrap(),
    }
    if let Some(y) = program.y {
        if model.loss == LossSpec::Mse {
            let targets: Vec<f32> = (0..model.batch * model.output.len()).map(|_| rng.normal() as f32).collect();
            write_real(&mut step, y, &targets);
        } else {
            let labels: Vec<i32> = (0..model.batch).map(|_| rng.below(model.output.len()) as i32).collect();
            step.write(y, &labels).unwrap();
        }
    }
    if let Ok(hyper) = step.find("hyper") {
        write_real(&mut step, hyper, &[model.optimizer.lr() as f32, model.optimizer.weight_decay() as f32]);
        let counter = step.find("counter").unwrap();
        step.write(counter, &[seed as i64, 0]).unwrap();
    }
    (step, Pool::new(threads).unwrap())
}

pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn write_param(step: &mut Step, id: ParamId, values: &[f32]) {
    match step.compiled().plan.program.real {
        DType::F64 => step.set_param(id, &widen(values)).unwrap(),
        _ => step.set_param(id, values).unwrap(),
    }
}

fn write_real(step: &mut Step, id: stepgraph::lower::LValueId, values: &[f32]) {
    match step.compiled().plan.program.real {
        DType::F64 => step.write(id, &widen(values)).unwrap(),
        _ => step.write(id, values).unwrap(),
    }
}

/// A parameter's gradient in f64, whatever the step computes in.
pub fn grad(step: &Step, id: ParamId) -> Vec<f64> {
    match step.compiled().plan.program.real {
        DType::F64 => step.grad::<f64>(id).unwrap(),
        _ => widen(&step.grad::<f32>(id).unwrap()),
    }
}

/// The trained parameters of a model.
pub fn trained(model: &Model) -> impl Iterator<Item = ParamId> + '_ {
    (0..model.params.len()).filter(|&i| model.params[i].kind.is_trained()).map(|i| ParamId(i as u32))
}
