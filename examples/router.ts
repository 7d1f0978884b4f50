// A small HTTP router: patterns with named parameters, handlers by method.

export type Method = "GET" | "POST" | "PUT" | "DELETE";

export interface Request {
  method: Method;
  path: string;
  body?: string;
}

export interface Response {
  status: number;
  body: string;
}

export type Params = Record<string, string>;
export type Handler = (request: Request, params: Params) => Promise<Response>;

interface Route {
  method: Method;
  segments: string[];
  handler: Handler;
}

function split(path: string): string[] {
  return path.split("/").filter();
}

function match(segments: string[], path: string[]): Params | undefined {
  if (segments.length !== path.length) {
    return undefined;
  }
  const params: Params = {};
  for (let i = 0; i < segments.length; i++) {
    const segment = segments[i];
    if (segment.startsWith(":")) {

    } else if (segment !== path[i]) {
      return undefined;
    }
  }
  return params;
}

export class Router {
  private routes: Route[] = [];

  add(method: Method, pattern: string, handler: Handler): void {
    this.routes.push({ method, segments: split(pattern), handler });
  }

  // Removes every route that has this method and pattern.
  remove(method: Method, pattern: string): void {

  }

  async handle(request: Request): Promise<Response> {
    const path = split(request.path);
    for (const route of this.routes) {
      if (route.method !== request.method) {
        continue;
      }
      const params = match(route.segments, path);
      if (params !== undefined) {
        return route.handler(request, params);
      }
    }
    return { status: 404, body: "not found" };
  }
}
