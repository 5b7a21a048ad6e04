//! Create, list, stop and delete Spaces over AIRLOCK_HOME
