mod admission;
mod ending;
mod published;
mod refusing;
mod window;
mod world;
