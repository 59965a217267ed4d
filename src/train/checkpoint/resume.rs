//! Continues from a checkpoint: what a run uses of it, and what it refuses.

use super::{Compared, Resumed};
use crate::lower::LValueId;
use crate::model::Model;
use crate::tensor::HostTensor;
use crate::train::file_keys::CHECKPOINT;
use crate::train::recipe::{Recipe, RecipeChange};
use crate::train::tensor_reader::{Entry, OpenTensors};
use crate::train::trained_on::TrainedOn;
use crate::train::weights::{import, open_tensors};
use crate::train::{DataFeed, KernelsOfRun, Origin, Session, TrainError, plant};
use std::collections::HashMap;
use std::path::Path;

impl Session {
    /// Restores the run from a checkpoint of the same network and data.
    ///
    /// # Errors
    /// If the file is not a checkpoint, or one of another network.
    pub fn load_checkpoint(&mut self, path: &Path) -> Result<(), TrainError> {
        self.load_compared(path, None)
    }

    /// Like [`Self::load_checkpoint`]; the recipe of the file may have been `compared` before.
    ///
    /// # Errors
    /// As [`Self::load_checkpoint`].
    pub(in crate::train) fn load_compared(
        &mut self,
        path: &Path,
        compared: Option<Compared>,
    ) -> Result<(), TrainError> {
        let file = open_tensors(path)?;
        let help = "give a file that was written as a checkpoint";
        let text = file.metadata.get(CHECKPOINT).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))?;
        let Compared { header, theirs, note, changes, .. } = match compared.filter(|c| c.text == *text) {
            Some(compared) => compared,
            None => Compared::new(text, &self.recipe.clone().of_steps(self.total), path)?,
        };
        // First, because samples differ too if the checkpoint is of another network.
        let wanted = self.wanted(&file, theirs.as_ref(), path)?;
        let (past, of_data) = self.check_data(&file.metadata, path)?;
        let notes = note.map(str::to_owned).into_iter().chain(changes.iter().map(RecipeChange::note));
        let of_rates = theirs.as_ref().and_then(|theirs| self.rates_note(theirs, header.step + 1));
        let of_kernels = header.kernels_note(self.kernels().map(KernelsOfRun::now));
        let resumed = Resumed { notes: notes.chain(of_rates).chain(of_data).chain(of_kernels).collect(), changes };
        let model = self.model().clone();
        // The session is changed only from here on: all parameters are checked before the first is set.
        self.state_changed()?;
        let result = self.apply(&file, &model, &wanted, path).and_then(|()| {
            let resumed = self.renew_rates(resumed)?;
            self.feed.resume(plant::resumed_at(header.position)).map(|()| resumed)
        });
        self.resumed = match result {
            Ok(resumed) => Some(resumed),
            Err(error) => {
                self.guard.put_back(&mut self.train)?;
                return Err(error);
            }
        };
        (self.done, self.last_loss, self.past) = (header.step, header.loss, past);
        self.state_changed()?;
        Ok(())
    }

    /// The state of this session with its entries in a checkpoint; entries that the checkpoint lacks start at zero.
    fn wanted(
        &self,
        file: &OpenTensors,
        theirs: Option<&Recipe>,
        path: &Path,
    ) -> Result<Vec<(String, Option<Entry>)>, TrainError> {
        let mut wanted: Vec<(String, Option<Entry>)> = Vec::new();
        let moments: HashMap<LValueId, &str> =
            self.compiled().plan.program.moments().map(|moment| (moment.value, moment.state)).collect();
        for name in self.state_names() {
            let id = self.train.find(&name)?;
            let shape = &self.compiled().plan.program.value(id).shape;
            let found = file.get(&format!("state.{name}")).filter(|t| t.shape == *shape);
            if found.is_none() && name == "scaler" {
                // Written by a step without loss scaling: this run starts with its own scale.
                continue;
            }
            if found.is_none()
                && moments.get(&id) == Some(&"momentum")
                && theirs.is_some_and(Recipe::is_without_momentum)
            {
                // Written by a step without momentum: the momentum starts at zero.
                wanted.push((name, None));
                continue;
            }
            let Some(found) = found else {
                return Err(TrainError::file(
                    path,
                    format!("lacks the state {name} {shape}"),
                    "give a checkpoint of this network and optimizer",
                ));
            };
            wanted.push((name, Some(found.clone())));
        }
        Ok(wanted)
    }

    /// The change of the next learning rate if the run has another number of steps than the checkpoint's, and a
    /// schedule that depends on it.
    fn rates_note(&self, theirs: &Recipe, next: u64) -> Option<String> {
        let (schedule, lr) = (self.model().update.schedule, self.model().optimizer.lr());
        let was = theirs.steps().filter(|was| schedule.kind.has_end() && *was != self.total)?;
        let [before, now] = [was, self.total].map(|total| schedule.rate(lr, next as i64, total as i64));
        Some(format!(
            "optimizer.schedule: of {was} steps, step {next} would have the rate {before:e}; of {} it has {now:e}",
            self.total
        ))
    }

    /// Refuses a checkpoint whose samples were prepared differently from this run's. Otherwise returns the other
    /// samples that the run was trained on before, and a note about them.
    fn check_data(
        &self,
        metadata: &HashMap<String, String>,
        path: &Path,
    ) -> Result<(Vec<TrainedOn>, Option<String>), TrainError> {
        let theirs = Origin::of_metadata(metadata, path)?;
        let past = self.past_of(theirs.as_ref());
        let (Some(theirs), DataFeed::Data { set, .. }) = (theirs, &self.feed) else { return Ok((past, None)) };
        if theirs.preprocessing.as_ref().is_some_and(|p| !p.is_as(&set.preprocessing)) {
            return Err(TrainError::file(
                path,
                "was made with samples that were prepared otherwise: mean, deviation or the order of classes differ",
                "begin a run that continues from it, which prepares its samples as the checkpoint says",
            ));
        }
        if past.is_empty() {
            return Ok((past, None));
        }
        let what = match self.data_digest.get().and_then(|own| theirs.is_of(own)) {
            Some(false) => "the samples are not those of the checkpoint",
            _ => "the run was trained on other samples before",
        };
        let note = format!("data: {what}; those that are held out now may have been trained on");
        Ok((past, Some(note)))
    }

    /// Sets the live fields of the optimizer that the recipe changed. Values that the user set during the run stay.
    fn renew_rates(&mut self, mut resumed: Resumed) -> Result<Resumed, TrainError> {
        let mut rates = self.train.stored::<f32>(self.watched.hyper)?.to_vec();
        let wanted = self.model().optimizer.live_fields();
        for (rate, (field, wanted)) in rates.iter_mut().zip(wanted) {
            if resumed.changes.iter().any(|c| c.field == field) {
                *rate = wanted as f32;
            } else if *rate != wanted as f32 {
                let note = format!(
                    "{field}: this run continues with {rate}, the checkpoint's last value; the preset has {wanted}"
                );
                resumed.notes.push(note);
            }
        }
        self.train.write(self.watched.hyper, &rates)?;
        Ok(resumed)
    }

    fn apply(
        &mut self,
        file: &OpenTensors,
        model: &Model,
        wanted: &[(String, Option<Entry>)],
        path: &Path,
    ) -> Result<(), TrainError> {
        import(&mut self.train, model, file, path)?;
        for (name, entry) in wanted {
            let id = self.train.find(name)?;
            let dtype = self.train.tensor_dtype(id);
            let Some(entry) = entry else {
                let shape = self.compiled().plan.program.value(id).shape.clone();
                self.train.set_tensor(id, &HostTensor::zeros(dtype, shape))?;
                continue;
            };
            if entry.dtype != dtype {
                let message = format!("holds {} for the state {name}", entry.dtype);
                return Err(TrainError::file(path, message, "the checkpoint is damaged"));
            }
            self.train.set_tensor(id, &file.read(entry)?)?;
        }
        Ok(())
    }
}
