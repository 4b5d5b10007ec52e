mod admission;
mod approving;
mod ending;
mod locking;
mod published;
mod refusing;
mod window;
mod world;
