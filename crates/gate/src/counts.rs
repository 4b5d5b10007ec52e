//! The counts of what users hold, with a maximum in total and for each user.

use std::collections::HashMap;

/// The counts of the [module](self).
#[derive(Debug)]
pub(crate) struct Counts {
    most: usize,
    most_per_user: usize,
    all: usize,
    by_user: HashMap<String, usize>,
}

/// The maximum that is reached, with the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The maximum for one user.
    PerUser(usize),
    /// The maximum in total.
    Total(usize),
}

impl Counts {
    /// Creates counts with these maximums.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Self {
        Self {
            most,
            most_per_user,
            all: 0,
            by_user: HashMap::new(),
        }
    }

    /// Returns the count of all users.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Counts one more of this user.
    ///
    /// # Errors
    /// When a maximum is reached.
    pub(crate) fn add(&mut self, user: &str) -> Result<(), Reached> {
        let theirs = self.by_user.get(user).copied().unwrap_or_default();
        if theirs >= self.most_per_user {
            return Err(Reached::PerUser(theirs));
        }
        if self.all >= self.most {
            return Err(Reached::Total(self.all));
        }
        self.all += 1;
        self.by_user.insert(user.to_owned(), theirs + 1);
        Ok(())
    }

    /// Counts one less of this user.
    pub(crate) fn remove(&mut self, user: &str) {
        self.all -= 1;
        if let Some(count) = self.by_user.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(user);
            }
        }
    }
}
