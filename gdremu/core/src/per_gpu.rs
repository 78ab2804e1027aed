//! Options that can have a value for each GPU.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// A value for each GPU, from the first on; the last one is also for all GPUs behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerGpu<T>(Vec<T>);

impl<T> PerGpu<T> {
    pub fn all(value: T) -> Self {
        PerGpu(vec![value])
    }

    pub fn of(&self, gpu: usize) -> &T {
        let last = self.0.len() - 1;
        &self.0[gpu.min(last)]
    }

    /// How many values there are, at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn read<E>(text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Self, E> {
        text.split(',').map(read).collect::<Result<_, _>>().map(PerGpu)
    }
}
