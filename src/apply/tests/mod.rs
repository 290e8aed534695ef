mod commands;
mod script;
mod txns;
