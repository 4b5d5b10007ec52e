//! prometheus-client; or without the feature `metrics`, types of the same names without function, so that
//! the code of metrics is the same in both cases.

#[cfg(feature = "metrics")]
pub use prometheus_client::{metrics, registry};

/// Empty types with the names of those of prometheus-client.
#[cfg(not(feature = "metrics"))]
pub mod metrics {
    /// A counter.
    pub mod counter {
        /// A counter without a value.
        #[derive(Clone, Debug, Default)]
        pub struct Counter;

        impl Counter {
            /// Does nothing.
            pub fn inc(&self) {}

            /// Does nothing.
            pub fn inc_by(&self, _: u64) {}
        }
    }

    /// A gauge.
    pub mod gauge {
        use std::marker::PhantomData;

        /// A gauge without a value.
        #[derive(Debug)]
        pub struct Gauge<N = i64, A = ()>(PhantomData<fn(N, A)>);

        impl<N, A> Clone for Gauge<N, A> {
            fn clone(&self) -> Self {
                Self::default()
            }
        }

        impl<N, A> Default for Gauge<N, A> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }

        impl<N, A> Gauge<N, A> {
            /// Does nothing.
            pub fn set(&self, _: N) {}

            /// Does nothing.
            pub fn inc(&self) {}

            /// Does nothing.
            pub fn dec(&self) {}

            /// Does nothing.
            pub fn inc_by(&self, _: N) {}
        }
    }

    /// A histogram.
    pub mod histogram {
        /// A histogram without values.
        #[derive(Clone, Debug, Default)]
        pub struct Histogram;

        impl Histogram {
            /// Ignores the buckets.
            pub fn new(_: impl IntoIterator<Item = f64>) -> Self {
                Self
            }

            /// Does nothing.
            pub fn observe(&self, _: f64) {}
        }
    }

    /// A metric for each set of labels.
    pub mod family {
        use std::marker::PhantomData;

        /// A family of one metric.
        #[derive(Clone, Debug)]
        pub struct Family<L, M, C = fn() -> M>(M, PhantomData<fn(L, C)>);

        impl<L, M: Default, C> Default for Family<L, M, C> {
            fn default() -> Self {
                Self(M::default(), PhantomData)
            }
        }

        impl<L, M, C: Fn() -> M> Family<L, M, C> {
            /// Creates a family with one metric from `constructor`.
            pub fn new_with_constructor(constructor: C) -> Self {
                Self(constructor(), PhantomData)
            }
        }

        impl<L, M, C> Family<L, M, C> {
            /// Returns the same metric for all labels.
            pub fn get_or_create(&self, _: &L) -> &M {
                &self.0
            }

            /// Does nothing.
            pub fn remove(&self, _: &L) -> bool {
                false
            }
        }
    }
}

/// A registry without metrics.
#[cfg(not(feature = "metrics"))]
pub mod registry {
    /// A registry without metrics.
    #[derive(Debug, Default)]
    pub struct Registry;

    /// Units of metrics.
    #[derive(Debug)]
    pub enum Unit {
        /// Seconds.
        Seconds,
    }

    impl Registry {
        /// Does nothing.
        pub fn register<M>(&mut self, _: impl Into<String>, _: impl Into<String>, _: M) {}

        /// Does nothing.
        pub fn register_with_unit<M>(
            &mut self,
            _: impl Into<String>,
            _: impl Into<String>,
            _: Unit,
            _: M,
        ) {
        }

        /// Returns the registry itself.
        pub fn sub_registry_with_prefix(&mut self, _: impl AsRef<str>) -> &mut Self {
            self
        }
    }
}
