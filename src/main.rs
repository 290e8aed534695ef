<<<<<<< HEAD
=======
//! SKELETON
>>>>>>> main
fn main() {}
