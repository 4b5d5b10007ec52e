//! Having an object looked at though no watch tells of anything: something was found out elsewhere in the
//! process.

use std::sync::Arc;

use parking_lot::Mutex;

/// Has objects looked at by those controllers that watch it, see [`Watches::signalled`].
///
/// [`Watches::signalled`]: crate::Watches::signalled
#[derive(Clone, Default)]
pub struct Signal(Arc<Mutex<Vec<Listener>>>);

type Listener = Box<dyn Fn(&str) + Send + Sync>;

impl Signal {
    /// Has the object with this UID looked at.
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
