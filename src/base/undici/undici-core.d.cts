export { Agent, buildConnector, Dispatcher, errors } from "undici";
