//! Generated gRPC code of cua.env.v1 and airlock.lane.v1, and its conversion to and from the model
