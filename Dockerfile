# attend, with the default model in it:          docker build -t attend .
# attend alone, to be given a model by a mount:  docker build -t attend:slim --target slim .

FROM debian:bookworm-slim AS tools
WORKDIR /src
COPY config/setup.sh config/
RUN sh config/setup.sh build

FROM tools AS build
COPY . .
RUN make -j"$(nproc)" && sh config/image.sh build/attend /image

# The default model: the one beside the Dockerfile, where `make run` has already fetched it, else fetched now.
FROM tools AS model
COPY config/fetch-model.sh models* models/
RUN mv models/fetch-model.sh config/ && sh config/fetch-model.sh

FROM scratch AS slim
COPY --from=build /image/ /
# The address of a container is its own; -p says who may reach it. The model: the one GGUF file in /models.
ENV PATH=/usr/bin ATTEND_HOST=0.0.0.0 ATTEND_MODEL=/models
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s CMD ["attend", "health"]
ENTRYPOINT ["attend"]

FROM slim
COPY --from=model /src/models/SmolLM2-135M-Instruct.Q4_1.gguf /models/
ENV ATTEND_MODEL=/models/SmolLM2-135M-Instruct.Q4_1.gguf
