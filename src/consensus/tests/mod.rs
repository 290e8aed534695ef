mod log_suite;
