mod fixture;
mod log_suite;
mod member;
mod parts;
