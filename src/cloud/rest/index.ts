/**
 * Requests with JSON to the HTTP API of a cloud's service: deadlines, request ids, one retry after refused credentials, and no requests to
 * a service that does not answer.
 *
 * Owns: the connections, the circuit of an endpoint, the codes of failures, and keeping secrets out of texts. Does not know: which service it
 * is, what a request means, where credentials come from ({@link Authenticator}).
 *
 * ```ts
 * await using rest = new RestClient({ clock, log, auth }, { service: "Neutron", faultOf: neutronFault });
 * const { body } = await rest.send({ method: "GET", path: "/v2.0/networks", action: "list networks", operation: "list-networks" }, { signal });
 * ```
 */
export { CLOUD_ERROR_CODES, CloudError, type CloudErrorCode, isCloudError } from "./errors.ts";
export {
  type Authenticator,
  type RestAnswer,
  RestClient,
  type RestClientOptions,
  type RestRequest,
  type RestSample,
} from "./rest-client.ts";
