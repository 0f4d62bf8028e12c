# SPDX-License-Identifier: Apache-2.0
"""Another server beside ours: grpcio, which answers with the message that is in a file.

    grpc_server.py ADDRESS ANSWER THREADS
"""
import sys
from concurrent import futures

import grpc

address, path, threads = sys.argv[1:]
with open(path, "rb") as f:
    answer = f.read()
server = grpc.server(futures.ThreadPoolExecutor(int(threads)))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "training.TrainingService",
    {"GetTrainingStatus": grpc.unary_unary_rpc_method_handler(lambda request, context: answer)}),))
server.add_insecure_port(address)
server.start()
print("listening", flush=True)
server.wait_for_termination()
