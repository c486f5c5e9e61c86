package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one line of a Dockerfile, with continuation lines joined.
type instruction struct {
	name, arguments string
}

func readDockerfile(t *testing.T) []instruction {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var instructions []instruction
	for line := range strings.Lines(joined) {
		name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			instructions = append(instructions, instruction{name, strings.TrimSpace(arguments)})
		}
	}
	return instructions
}

// finalStage returns what ends up in the image: everything from the last FROM.
func finalStage(instructions []instruction) []instruction {
	last := 0
	for i, in := range instructions {
		if in.name == "FROM" {
			last = i
		}
	}
	return instructions[last:]
}

func argumentsOf(stage []instruction, name string) []string {
	var all []string
	for _, in := range stage {
		if in.name == name {
			all = append(all, in.arguments)
		}
	}
	return all
}

func TestImageHoldsNothingButTheBinary(t *testing.T) {
	t.Parallel()
	stage := finalStage(readDockerfile(t))
	if got := stage[0].arguments; got != "scratch" {
		t.Errorf("the final stage is FROM %s, want scratch", got)
	}
	if got := argumentsOf(stage, "RUN"); len(got) > 0 {
		t.Errorf("the final stage runs %v, but it has no shell", got)
	}
	for _, form := range slices.Concat(argumentsOf(stage, "ENTRYPOINT"), argumentsOf(stage, "CMD")) {
		if !strings.HasPrefix(form, "[") {
			t.Errorf("%q needs a shell: use the exec form", form)
		}
	}
}

func TestImageRunsAsANumberedUserThatIsNotRoot(t *testing.T) {
	t.Parallel()
	users := argumentsOf(finalStage(readDockerfile(t)), "USER")
	if len(users) != 1 || !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(users[0]) {
		t.Errorf("USER %v: want one numeric user and group other than 0", users)
	}
}

func TestImageBinaryIsStatic(t *testing.T) {
	t.Parallel()
	builds := 0
	for _, command := range argumentsOf(readDockerfile(t), "RUN") {
		if strings.Contains(command, "go build") {
			builds++
			for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "./cmd/berth"} {
				if !strings.Contains(command, flag) {
					t.Errorf("%q lacks %s", command, flag)
				}
			}
		}
	}
	if builds != 1 {
		t.Errorf("%d go build commands, want 1", builds)
	}
}

func TestImageChecksItsOwnHealth(t *testing.T) {
	t.Parallel()
	checks := argumentsOf(finalStage(readDockerfile(t)), "HEALTHCHECK")
	if len(checks) != 1 || !strings.Contains(checks[0], `"healthcheck"`) || !strings.Contains(checks[0], `CMD [`) {
		t.Errorf("HEALTHCHECK %v: want berth healthcheck in the exec form", checks)
	}
}

func TestImageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	labels := strings.Join(argumentsOf(finalStage(readDockerfile(t)), "LABEL"), " ")
	for _, label := range []string{"title", "description", "source", "licenses", "version"} {
		if !strings.Contains(labels, "org.opencontainers.image."+label+"=") {
			t.Errorf("label org.opencontainers.image.%s is missing", label)
		}
	}
}
