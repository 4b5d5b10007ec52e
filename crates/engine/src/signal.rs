//! Signals that reconcile an object without a change in a watch: another component of the process has new
//! information about it.

use std::sync::Arc;

use parking_lot::Mutex;

/// A signal that reconciles objects in those controllers that watch it, see [`Watches::signalled`].
///
/// [`Watches::signalled`]: crate::Watches::signalled
#[derive(Clone, Default)]
pub struct Signal(Arc<Mutex<Vec<Listener>>>);

type Listener = Box<dyn Fn(&str) + Send + Sync>;

impl Signal {
    /// Queues the object with this UID.
    pub fn raise(&self, uid: &str) {
        let listeners = self.0.lock();
        for listener in listeners.iter() {
            listener(uid);
        }
    }

    pub(crate) fn listen(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let mut listeners = self.0.lock();
        listeners.push(Box::new(listener));
    }
}
