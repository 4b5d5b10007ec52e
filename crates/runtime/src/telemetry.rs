//! prometheus-client; or without the feature `metrics`, types of the same names that count nothing, so that
//! whoever counts does so in one way.

#[cfg(feature = "metrics")]
pub use prometheus_client::{metrics, registry};

/// Types of prometheus-client's, which are empty here.
#[cfg(not(feature = "metrics"))]
pub mod metrics {
    /// A counter.
    pub mod counter {
        /// Counts nothing.
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

        /// Shows nothing.
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
        /// Observes nothing.
        #[derive(Clone, Debug, Default)]
        pub struct Histogram;

        impl Histogram {
            /// Does nothing with the buckets.
            pub fn new(_: impl IntoIterator<Item = f64>) -> Self {
                Self
            }

            /// Does nothing.
            pub fn observe(&self, _: f64) {}
        }
    }

    /// One metric for each set of labels.
    pub mod family {
        use std::marker::PhantomData;

        /// Keeps nothing.
        #[derive(Clone, Debug)]
        pub struct Family<L, M, C = fn() -> M>(M, PhantomData<fn(L, C)>);

        impl<L, M: Default, C> Default for Family<L, M, C> {
            fn default() -> Self {
                Self(M::default(), PhantomData)
            }
        }

        impl<L, M, C: Fn() -> M> Family<L, M, C> {
            /// One of what `constructor` makes.
            pub fn new_with_constructor(constructor: C) -> Self {
                Self(constructor(), PhantomData)
            }
        }

        impl<L, M, C> Family<L, M, C> {
            /// The same whatever the labels are.
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

/// Where metrics would be kept.
#[cfg(not(feature = "metrics"))]
pub mod registry {
    /// Keeps nothing.
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

        /// Itself.
        pub fn sub_registry_with_prefix(&mut self, _: impl AsRef<str>) -> &mut Self {
            self
        }
    }
}
